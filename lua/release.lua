-- Release: refunds units in flight, of all lines behind this one that have the same key and quota. No waits are
-- computed. A refund that ring.lua makes takes up to 20 times as long in a batch (`benches/redis/concurrency.rs`).
--
-- Left to ring.lua are units that were charged together with others, blocked keys, logs with units of another
-- window, and logs that have more than 32 blocks behind the first record that is released.
--
-- KEYS     the key of the charge
-- ARGV[2]  for each line limit, window, parameter, cost, the mark: the number of the record
-- STATE    a log: see ring.lua
-- RETURNS  the units that still counted. The units of records that have expired are not free in this
--          standing, and its waits are those until all units are free
-- TTL      stays. A log without units is deleted, unless its newest record has a time to come: the next
--          charge may have that time
if operation == 'g' and in_flight and not is_followed and answering and not block_header then
  local sub, floor, final = string.sub, math.floor, charge
  local quota = sub(lines, position, position + 25)
  -- A line has 82 bytes.
  while keys[final + 1] == key and sub(lines, final * 82 + 1, final * 82 + 26) == quota do
    final = final + 1
  end
  local is_short = #state % 10 == 4 and #state >= 34
  local known, state_window, start, head, tail = 0, 0, 0, 0, 0
  local old_life, old_end, places, until_ms, before_last, last_time, last_total, head_time, head_total
  local fits = is_short
  if is_short then
    known, state_window, tail, head, start = parse('<I7I6BI6I4', state)
    fits = tail > 0 and #state >= tail * 10 + 24
    tail = head + tail
  elseif #state % 10 == 8 and #state >= 238 then
    known, state_window, old_life, old_end, start, head, tail, places, until_ms, before_last,
      last_time, last_total, head_time, head_total = parse('<I7I6I6I6I4I6I6I4I7I4I7I4I7I4', state)
    fits = old_end <= head and head < tail and floor((tail - 1) / 8) - floor(head / 8) <= places
      and places > 0 and places <= 147457 and last_time <= known + window and head_time <= last_time
  end
  local seen = now > known and now or known
  fits = fits and state_window == window and seen <= now + window
  -- The marks of the lines, and the first record among them.
  local marks, low = {}, tail
  for line = charge, fits and final or 0 do
    local mark = parse('<d', lines, line * 82 - 39)
    marks[line] = mark
    if mark >= head and mark < low then low = mark end
  end
  -- The records from `origin` on are in `text` behind `from`: from the first one that is released on, or from
  -- the beginning of its block, or of the block before it, which has the total before its first record.
  local origin, text, from, newest = low, state, 24 + (low - head) * 10, floor((tail - 1) / 8)
  if fits and not is_short and low < tail then
    local block = floor(low / 8)
    if low % 8 == 0 and low > head then block = block - 1 end
    origin, text, from, fits = block * 8, '', 0, newest - block <= 32
    while fits and block < newest do
      local place, count = block % places, newest - block
      if place + count > places then count = places - place end
      place = ring_at + place * 80
      text = text .. call('GETRANGE', key, place, place + count * 80 - 1)
      block = block + count
    end
    text = text .. sub(state, 79, 88 + (tail - 1) % 8 * 10)
    fits = fits and #text == (tail - origin) * 10
  end
  if fits then
    local count, released, taken, all = tail - origin, {}, {}, 0
    local layout = '<' .. string.rep('I6I4', count)
    local numbers, first = count > 0 and { parse(layout, text, from + 1) } or {}, 0
    if not is_short then
      -- The totals of a block are relative to its first one.
      for i = 2, count * 2, 2 do
        if i % 16 == 2 then first = numbers[i] else numbers[i] = (numbers[i] + first) % 4294967296 end
      end
    end
    for line = charge, final do
      local index = marks[line] - origin
      taken[line] = 0
      if marks[line] >= low and index < count then
        local before = marks[line] == head and start or index > 0 and numbers[index * 2]
          or parse('<I4', state, from - 3)
        local counts = seen - nearest(numbers[index * 2 + 1], known) < window
        local gone = released[index] or 0
        local left, most = (numbers[index * 2 + 2] - before) % 4294967296 - gone,
          parse('<d', lines, line * 82 - 55)
        units = counts and (left < most and left or most) or 0
        taken[line], released[index], all = units, gone + units, all + units
      end
    end
    if not last_time and count > 0 then last_time = nearest(numbers[count * 2 - 1], known) end
    if count > 0 then last_total = numbers[count * 2] end
    local used = ((last_total or start) - all - start) % 4294967296
    if all > 0 and used == 0 and last_time <= now then
      call('DEL', key)
    elseif all > 0 then
      local gone = 0
      for i = 2, count * 2, 2 do
        gone = gone + (released[i / 2 - 1] or 0)
        numbers[i] = (numbers[i] - gone) % 4294967296
        if not is_short then
          if i % 16 == 2 then first = numbers[i] else numbers[i] = (numbers[i] - first) % 4294967296 end
        end
      end
      text = pack(layout, unpack(numbers, 1, count * 2))
      if is_short then
        call('SETRANGE', key, from, text)
      else
        local block, at = origin / 8, 1
        local oldest = block == floor(head / 8) and block < newest and sub(text, 1, 80)
        while block < newest do
          local place, blocks = block % places, newest - block
          if place + blocks > places then blocks = places - place end
          call('SETRANGE', key, ring_at + place * 80, sub(text, at, at + blocks * 80 - 1))
          block, at = block + blocks, at + blocks * 80
        end
        before_last = (before_last - all + (released[count - 1] or 0)) % 4294967296
        head_total = (head_total - (released[head - origin] or 0)) % 4294967296
        text = pack('<I7I6I6I6I4I6I6I4I7I4I7I4I7I4', known, state_window, old_life, old_end, start,
          head, tail, places, until_ms, before_last, last_time, (last_total - all) % 4294967296,
          head_time, head_total) .. sub(text, at)
        if oldest then text = text .. sub(state, #text + 1, 158) .. oldest end
        call('SETRANGE', key, '0', text)
      end
    end
    free = limit > used and limit - used or 0
    if used > 0 and last_time then reset_after = window - seen + last_time end
    if reset_after < 0 then reset_after = 0 end
    next_after, retry_after = reset_after, reset_after
    for line = charge, final do
      reply[line] = pack('<ddddddddd', now, taken[line], free, next_after, reset_after, retry_after,
        marks[line], 0, 0)
    end
    return admitted, nil, final
  end
end
