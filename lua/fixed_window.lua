-- Fixed window: one counter that starts again at each multiple of the window.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost; of a refund also the mark and window of the charge
-- STATE    20 bytes: count, time and window of the last charge, in whose period the count is; then
--          what is carried from earlier windows (see carried.lua)
-- RETURNS  the standing; mark: start of the period, and the generation of its counter, or 0
-- TTL      the end of the period, or of one under an earlier window; set when the period begins or the
--          window changes
if not block_header then state = read('GET', key) end
local count, used, end_, seen, renew, carried, carried_functions
local generation, until_
local refunded = operation ~= 'g' or not answering
repeat
  local last_charge, state_window = 0, window
  count, carried, generation, until_ = 0, false, 0, 0
  if state then
    if #state == 20 or #state % 35 == 34 and #state <= 314 then
      count, last_charge, state_window = parse('<I7I7I6', state)
    else
      foreign = true
    end
    if count > 4503599627370496 or last_charge > 9007199254740991 or state_window == 0
      or state_window > 34560000000000 then
      foreign = true
    end
    if foreign then
      answering, refunded, state = false, true, nil
      count, last_charge, state_window = 0, 0, window
    elseif last_charge > now + state_window then
      -- The clock has been set back: everything is taken as charged now.
      if #state > 20 then
        carried_functions = carried_functions
          or make_carried_functions(mul_div, parse, pack)
        count = count
          + carried_functions.used(carried_functions.load(state, 20, last_charge), last_charge)
        if count > 4503599627370496 then count = 4503599627370496 end
      end
      last_charge, state = now, pack('<I7I7I6', count, now, state_window)
      written, expires = state, now - now % state_window + state_window
    end
  end
  -- The time at which the state is judged: never before its last charge.
  seen = now > last_charge and now or last_charge
  local stored, last_end = count, last_charge - last_charge % state_window + state_window
  local stored_generation = 0
  if state and (state_window ~= window or #state > 20) then
    carried_functions = carried_functions
      or make_carried_functions(mul_div, parse, pack)
    carried, generation, until_ = carried_functions.load(state, 20, last_charge)
    stored_generation = generation
    if state_window ~= window then
      generation = seen > generation and seen or generation + 1
      until_ = math.max(until_, last_end, generation - generation % window + window)
      -- The counter starts at 0. The units of the old period are carried, as if all had been charged at
      -- the time of the last charge.
      local edge = last_charge - last_charge % window + window
      carried = carried_functions.bound(carried, edge, edge)
      carried_functions.add(carried, count, last_end, last_end, edge, edge)
    end
  end
  if state_window == window and seen < last_end then
    end_, renew = last_end, expires or not state
  else
    count, end_, renew = 0, seen - seen % window + window, true
  end
  used = carried and count + carried_functions.used(carried, seen) or count
  free = limit > used and limit - used or 0
  if not foreign then
    admitted = admitted and free >= required
    if not last then
      admitted, last, same_keys = turn(operation, now, charge + 1, admitted)
      if admitted == nil then return nil, last end
    end
  end
  if refunded then break end
  -- The refund changes the stored state, and the loop then reads it again.
  refunded = true
  local spent_end = mark1 + spent_window
  local is_stored = state_window == spent_window and last_end == spent_end
    and mark2 == (stored_generation >= mark1 and stored_generation or 0)
  if carried and carried_functions.counts(carried, spent_end, spent_end, seen)
    or is_stored and window == spent_window and seen < spent_end then
    if is_stored and stored > 0 then
      if units > stored then units = stored end
      state = pack('<I7', stored - units) .. string.sub(state, 8)
    elseif state and #state > 20 then
      units, state = carried_functions.take(state, 20, spent_end, spent_end, seen, units)
    else
      units = 0
    end
  else
    units = 0
  end
  if units > 0 then written = state end
until units == 0
if answering then
  if operation ~= 'g' then
    if (admitted or trial) and free >= needed then
      units = max_cost <= cost and cost
        or math.min(max_cost, flags % 8 >= 4 and cost + math.floor((free - cost) / 2) or free)
    end
    if units > 0 then
      used, count = used - count, count + units
      -- Far beyond any limit, forced charges stop counting.
      if count > 4503599627370496 then count = 4503599627370496 end
      used, mark1 = used + count, end_ - window
      if generation >= mark1 then mark2 = generation end
      written = pack('<I7I7I6', count, seen, window)
      if renew then
        expires = end_ > until_ and end_ or until_
        if carried then
          written = written .. carried_functions.save(generation, until_, carried, seen)
        end
      end
      free = limit > used and limit - used or 0
    end
  end
  if used > 0 and carried then
    local high = carried_functions.zero(carried)
    if high < end_ then high = end_ end
    local used_at = function(time)
      return (time < end_ and count or 0) + carried_functions.used(carried, time)
    end
    next_after = carried_functions.first_time(seen, high, limit - free - 1, used_at) - now
    reset_after = carried_functions.first_time(seen, high, 0, used_at) - now
    if units == 0 and cost > free and cost <= limit then
      retry_after = carried_functions.first_time(seen, high, limit - cost, used_at) - now
    end
  elseif used > 0 then
    next_after = end_ - now
    reset_after, retry_after = next_after, next_after
  end
end
