-- Sliding counter: two periods, the older one weighted by its overlap with the trailing window. The
-- estimate is ceil(previous * (end - now) / (end - start)) + current.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    41 bytes: current, previous, start and end of the current period, start of the previous
--          one (before), and the window under which `current` began to count
-- RETURNS  the standing; mark: start
-- TTL      one window after the end of the period; set when a period begins or is cut short
if not already_read then state = read('GET', key) end
local current, previous, start, end_, before, state_window, renew = 0, 0, 0, 0, 0, 0, true
if state then
  if #state == 41 then
    current, previous, start, end_, before, state_window = parse('<I7I7I7I7I7I6', state)
  else
    foreign = true
  end
  if current > 4503599627370496 then foreign = true end
  if foreign then answering = false end
  renew = start + window < end_
  if renew then end_ = start + window end
end
-- What was counted under another window leaves by the shorter of the two.
local next_length = state_window < window and state_window or window
if now >= end_ then
  renew = true
  if now < end_ + next_length then
    current, previous, before, start, end_ = 0, current, start, end_, end_ + next_length
    state_window, next_length = window, window
  else
    current, previous, start = 0, 0, now - now % window
    before, end_, state_window, next_length = start, start + window, window, window
  end
end
local length, estimate = end_ - start, current
if previous > 0 then
  -- A clock that ran backward is taken to stand at the start of the period.
  local overlap, rest = mul_div(previous, end_ - (now > start and now or start), 0, length)
  estimate = estimate + overlap + (rest > 0 and 1 or 0)
end
free = limit > estimate and limit - estimate or 0
if answering then
  local changed = false
  if refunding then
    changed = units > 0 and (mark1 == start or mark1 == before)
    if not changed then
      units = 0
    elseif mark1 == start then
      if units > current then units = current end
      current, estimate = current - units, estimate - units
    else
      if units > previous then units = previous end
      previous = previous - units
      local overlap, rest = mul_div(previous, end_ - (now > start and now or start), 0, length)
      estimate = current + overlap + (rest > 0 and 1 or 0)
    end
  else
    if free >= needed then units = max_cost < free and max_cost or free end
    if units > 0 then
      estimate, current = estimate - current, current + units
      -- Far beyond any limit, forced charges stop counting.
      if current > 4503599627370496 then current = 4503599627370496 end
      estimate = estimate + current
      mark1, changed = start, true
    end
  end
  if changed then
    state = pack('<I7I7I7I7I7I6', current, previous, start, end_, before, state_window)
    if renew then store(key, state, end_ + state_window) else call('SETRANGE', key, '0', state) end
    free = limit > estimate and limit - estimate or 0
  end
  if estimate > 0 then
    -- The waits until one more unit, all units, and the cost are free.
    for want = 1, units > 0 and 2 or 3 do
      local wanted = want == 1 and free + 1 or want == 2 and limit or cost
      if wanted > free and wanted <= limit then
        -- When the estimate comes down to `target`: in this period, or in the next one, in which
        -- what is current now is the previous.
        local target, time = limit - wanted, now
        if target < current then
          time = end_ + next_length - mul_div(target, next_length, 0, current)
        elseif estimate > target then
          time = end_ - mul_div(target - current, length, 0, previous)
        end
        local wait = time > now and time - now or 0
        if want == 1 then next_after = wait
        elseif want == 2 then reset_after = wait
        else retry_after = wait end
      end
    end
  end
end
