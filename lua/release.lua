-- Release: refunds units in flight to a short log, which is what most logs of a concurrency limit are. It
-- searches nothing, and computes no waits. Long logs, blocked keys and all other refunds are left to ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter, cost, the mark: the number of the record
-- STATE    a short log: see ring.lua
-- RETURNS  the units that still counted. The units of records that have expired are not free in this
--          standing, and its waits are those until all units are free
-- TTL      stays. A log without units is deleted, unless its newest record has a time to come: the next
--          charge may have that time
if operation == 'g' and algorithm == 1 and parameter == 1 and answering and not block_header then
  local count = #state % 10 == 3 and (#state - 23) / 10 or 0
  local known, state_window, head, start, slot = 0, 0, 0, 0, 0
  if count > 0 then
    known, state_window, head, start = parse('<I7I6I6I4', state)
    slot = mark1 - head
  end
  -- A record is at `at`. Its time is that of its last 48 bits.
  local at, seen = 24 + slot * 10, now > known and now or known
  if state_window == window and slot >= 0 and slot < count and seen <= now + window then
    local layout = '<' .. string.rep('I6I4', count - slot)
    local numbers = { parse(layout, state, at) }
    local newest = (count - slot) * 2
    local before = slot > 0 and parse('<I4', state, at - 4) or start
    local age, youngest = (known - numbers[1]) % 281474976710656,
      (known - numbers[newest - 1]) % 281474976710656
    -- The end of an open bucket is later than `known`.
    if age > 140737488355328 then age = age - 281474976710656 end
    if youngest > 140737488355328 then youngest = youngest - 281474976710656 end
    local counts = seen - known + age < window
    units = counts and (numbers[2] - before) % 4294967296 or 0
    if units > cost then units = cost end
    if units > 0 then
      for i = 2, newest, 2 do numbers[i] = (numbers[i] - units) % 4294967296 end
      if numbers[newest] == start and known - youngest <= now then
        call('DEL', key)
      else
        call('SETRANGE', key, at - 1, pack(layout, unpack(numbers, 1, newest)))
      end
    end
    local used = (numbers[newest] - start) % 4294967296
    free = limit > used and limit - used or 0
    if used > 0 then reset_after = window - (seen - known + youngest) end
    if reset_after < 0 then reset_after = 0 end
    next_after, retry_after = reset_after, reset_after
    if reply then
      reply[charge + 1] = pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1, 0, 0)
    else
      reply = pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, 0, 0)
    end
    return admitted
  end
end
