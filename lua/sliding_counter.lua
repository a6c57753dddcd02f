-- Sliding counter: two periods, the older one weighted by its overlap with the trailing window. The
-- estimate is ceil(previous * (end - now) / window) + current.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost; of a refund also the mark and window of the charge
-- STATE    27 bytes: current, previous, time and window of the last charge, in whose period the
--          current count is; then what is carried from earlier windows (see carried.lua)
-- RETURNS  the standing; mark: start of the current period, and the generation of its counter, or 0
-- TTL      one window after the end of the period, or of one under an earlier window; set when a period
--          begins or the window changes
if not block_header then state = read('GET', key) end
local current, previous, estimate, end_, seen, renew, carried, carried_functions
local generation, until_
local refunded = operation ~= 'g' or not answering
repeat
  local last_charge, state_window = 0, window
  current, previous, carried, generation, until_ = 0, 0, false, 0, 0
  if state then
    if #state == 27 or #state % 35 == 6 and #state >= 41 and #state <= 321 then
      current, previous, last_charge, state_window = parse('<I7I7I7I6', state)
    else
      foreign = true
    end
    if current > 4503599627370496 or previous > 4503599627370496
      or last_charge > 9007199254740991 or state_window == 0 or state_window > 34560000000000 then
      foreign = true
    end
    if foreign then
      answering, refunded, state = false, true, nil
      current, previous, last_charge, state_window = 0, 0, 0, window
    elseif last_charge > now + state_window then
      -- The clock has been set back: the units that counted at the last charge are taken as charged now.
      local overlap, rest =
        mul_div(previous, state_window - last_charge % state_window, 0, state_window)
      current = current + overlap + (rest > 0 and 1 or 0)
      if #state > 27 then
        carried_functions = carried_functions
          or make_carried_functions(mul_div, parse, pack)
        current = current
          + carried_functions.used(carried_functions.load(state, 27, last_charge), last_charge)
      end
      if current > 4503599627370496 then current = 4503599627370496 end
      previous, last_charge, state = 0, now, pack('<I7I7I7I6', current, 0, now, state_window)
      written, expires = state, now - now % state_window + 2 * state_window
    end
  end
  -- The time at which the state is judged: never before its last charge.
  seen = now > last_charge and now or last_charge
  local stored, stored_previous, stored_generation = current, previous, 0
  local last_end = last_charge - last_charge % state_window + state_window
  if state and (state_window ~= window or #state > 27) then
    carried_functions = carried_functions
      or make_carried_functions(mul_div, parse, pack)
    carried, generation, until_ = carried_functions.load(state, 27, last_charge)
    stored_generation = generation
    if state_window ~= window then
      generation = seen > generation and seen or generation + 1
      until_ = math.max(until_, last_end + state_window,
        generation - generation % window + 2 * window)
      -- Both counters start at 0. The units of the old periods are carried, as if they had been charged
      -- in the last microsecond of the previous period, and at the time of the last charge.
      local edge = last_charge - last_charge % window + window
      local start = last_end - state_window
      local before = start > 0 and start - 1 or 0
      before = before - before % window + window
      carried = carried_functions.bound(carried, edge, edge + window)
      carried_functions.add(carried, previous, start, last_end, before, before + window)
      local zero = last_end + state_window
      carried_functions.add(carried, current, last_end, zero, edge, edge + window)
    end
  end
  if state_window == window and seen < last_end then
    end_, renew = last_end, expires or not state
  else
    end_, renew = seen - seen % window + window, true
    if state_window == window and end_ == last_end + window then
      current, previous = 0, current
    else
      current, previous = 0, 0
    end
  end
  estimate = current
  if previous > 0 then
    local overlap, rest = mul_div(previous, end_ - seen, 0, window)
    estimate = estimate + overlap + (rest > 0 and 1 or 0)
  end
  if carried then estimate = estimate + carried_functions.used(carried, seen) end
  free = limit > estimate and limit - estimate or 0
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
  local spent_zero = spent_end + spent_window
  local is_stored = state_window == spent_window
    and mark2 == (stored_generation >= mark1 and stored_generation or 0)
  local is_current = is_stored and spent_end == last_end
  local is_previous = is_stored and spent_zero == last_end
  if carried and carried_functions.counts(carried, spent_end, spent_zero, seen)
    or (is_current or is_previous) and window == spent_window and seen < spent_zero then
    if is_current and stored > 0 then
      if units > stored then units = stored end
      state = pack('<I7', stored - units) .. string.sub(state, 8)
    elseif is_previous and stored_previous > 0 then
      if units > stored_previous then units = stored_previous end
      state = string.sub(state, 1, 7) .. pack('<I7', stored_previous - units) .. string.sub(state, 15)
    elseif state and #state > 27 then
      units, state = carried_functions.take(state, 27, spent_end, spent_zero, seen, units)
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
      estimate, current = estimate - current, current + units
      -- Far beyond any limit, forced charges stop counting.
      if current > 4503599627370496 then current = 4503599627370496 end
      estimate, mark1 = estimate + current, end_ - window
      if generation >= mark1 then mark2 = generation end
      written = pack('<I7I7I7I6', current, previous, seen, window)
      if renew then
        expires = end_ + window > until_ and end_ + window or until_
        if carried then
          written = written .. carried_functions.save(generation, until_, carried, seen)
        end
      end
      free = limit > estimate and limit - estimate or 0
    end
  end
  if estimate > 0 then
    -- The waits until one more unit, all units, and the cost are free.
    local high, used_at
    if carried then
      high = carried_functions.zero(carried)
      if high < end_ + window then high = end_ + window end
      used_at = function(time)
        local sum = carried_functions.used(carried, time)
        local counter, zero = previous, end_
        if time >= end_ then counter, zero = current, end_ + window else sum = sum + current end
        if time >= zero then return sum end
        local weight, rest = mul_div(counter, zero - time, 0, window)
        return sum + weight + (rest > 0 and 1 or 0)
      end
    end
    for want = 1, units > 0 and 2 or 3 do
      local wanted = want == 1 and free + 1 or want == 2 and limit or cost
      if wanted > free and wanted <= limit then
        -- The time at which the estimate falls to `target`. It lies in this period, or in the next one,
        -- in which the current count is the previous one.
        local target, time = limit - wanted, now
        if carried then
          time = carried_functions.first_time(seen, high, target, used_at)
        elseif target < current then
          time = end_ + window - mul_div(target, window, 0, current)
        elseif estimate > target then
          time = end_ - mul_div(target - current, window, 0, previous)
        end
        local wait = time > now and time - now or 0
        if want == 1 then next_after = wait
        elseif want == 2 then reset_after = wait
        else retry_after = wait end
      end
    end
  end
end
