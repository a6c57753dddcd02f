-- Periods: the counters that fixed_window.lua and sliding_counter.lua share. The units of a period fade out over
-- `fade` windows after its end: 0 of a fixed window, 1 of a sliding counter. The twin of
-- src/algorithm/periods.rs, which says what a change of the window does.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost; of a refund also the mark and window of the charge
-- STATE    27 bytes: the units of the period of the last charge and of the one before it, and the time and
--          window of that charge. After a change of the window, 35 more: the generation of the counters, the
--          time until which this record is needed, the carried units, and their hold and zero. All of them
--          count until `hold`, none from `zero` on, and evenly fewer in between
-- RETURNS  the standing; mark: start of the period, and the generation of its counter, or 0
-- TTL      the time from which the period weighs nothing, or one under an earlier window; set when a period
--          begins or the window changes
if fade then
  local layout, record = '<I7I7I7I6', '<I7I7I7I7I7'
  local current, previous, last_charge, state_window = 0, 0, 0, window
  local generation, until_, carried, hold, zero = 0, 0, 0, 0, 0

  -- Returns how many of these units count at a time, rounded up.
  local function weight(units, hold, zero, time)
    if time >= zero then return 0 end
    if time <= hold then return units end
    return div_up(units, zero - time, 0, zero - hold)
  end

  if state ~= '' then
    if #state == 27 or #state == 62 then
      current, previous, last_charge, state_window = parse(layout, state)
      if #state == 62 then generation, until_, carried, hold, zero = parse(record, state, 28) end
    end
    foreign = #state ~= 27 and #state ~= 62 or current > 4503599627370496 or previous > 4503599627370496
      or carried > 4503599627370496 or last_charge > 9007199254740991 or state_window == 0
      or state_window > 34560000000000 or generation > last_charge + state_window
      or until_ > generation + 69120000000000 or hold > zero or zero > until_
  end
  if not foreign then
    local last_end, is_set_back = last_charge - last_charge % state_window + state_window,
      last_charge > now + state_window
    local is_changed = state_window ~= window
    local counted = 0
    if is_set_back or is_changed then
      -- All units that counted at the last charge.
      counted = current + weight(previous, last_end - state_window, last_end, last_charge)
        + weight(carried, hold, zero, last_charge)
      if counted > 4503599627370496 then counted = 4503599627370496 end
    end
    if is_set_back then
      -- The clock has been set back: everything is taken as charged now.
      current, previous, last_charge, generation, until_, carried = counted, 0, now, 0, 0, 0
      last_end = now - now % state_window + state_window
      state = pack(layout, current, 0, now, state_window)
      written, expires = state, last_end + fade * state_window
    end
    -- The time at which the state is judged: never before its last charge.
    local seen = now > last_charge and now or last_charge
    if operation == 'g' and answering then
      local spent_end = mark1 + window
      if is_changed or spent_window ~= window or seen >= spent_end + fade * window
        or mark2 ~= (generation >= mark1 and generation or 0) then
        units = 0
      elseif spent_end == last_end then
        if units > current then units = current end
        current = current - units
      elseif spent_end + window == last_end then
        if units > previous then units = previous end
        previous = previous - units
      else
        units = 0
      end
      if units > 0 then written = pack(layout, current, previous, last_charge, window) end
    end
    if is_changed then
      -- The counters start at 0. The units so far are carried: they leave by the rule of the old or the new
      -- window by which the last of them leaves first.
      local edge = last_charge - last_charge % window + window
      generation = seen > generation and seen or generation + 1
      carried, hold, zero = counted, last_end, last_end + fade * state_window
      until_ = math.max(until_, zero, generation - generation % window + window + fade * window)
      if edge + fade * window < zero then hold, zero = edge, edge + fade * window end
      current, previous = 0, 0
    end
    local end_ = seen - seen % window + window
    local is_new = is_changed or is_set_back or state == '' or end_ ~= last_end
    if end_ ~= last_end then
      current, previous = 0, end_ == last_end + window and fade * current or 0
    end

    local used = current
    if previous > 0 then used = used + weight(previous, end_ - window, end_, seen) end
    if carried > 0 then used = used + weight(carried, hold, zero, seen) end
    free = limit > used and limit - used or 0
    if is_followed then
      admitted, foreign, last =
        decide(operation, now, charge + 1, admitted and free >= required)
      if foreign then return nil, foreign end
    end
    if answering and operation ~= 'g' and (admitted or trial) and free >= needed then
      units = max_cost > cost and units_of(free, cost, max_cost, flags) or cost
    end
    if answering and operation ~= 'g' and units > 0 then
      used, current, mark1 = used - current, current + units, end_ - window
      -- Far beyond any limit, forced charges stop counting.
      if current > 4503599627370496 then current = 4503599627370496 end
      if generation >= mark1 then mark2 = generation end
      written = pack(layout, current, previous, seen, window)
      if is_new then
        expires = math.max(end_ + fade * window, until_)
        if seen < until_ then
          written = written .. pack(record, generation, until_, carried, hold, zero)
        end
      end
      used = used + current
      free = limit > used and limit - used or 0
    end
    -- The waits until one more unit, all units, and the cost are free.
    for want = 1, answering and used > 0 and (units > 0 and 2 or 3) or 0 do
      local wanted = want == 1 and free + 1 or want == 2 and limit or cost
      if wanted > free and wanted <= limit then
        local target, time = limit - wanted, seen
        if seen < zero and carried > 0 then
          -- A sum of rounded weights has no inverse, so the time is searched.
          local high = math.max(end_ + fade * window, zero)
          while time < high do
            local middle = time + math.floor((high - time) / 2)
            local left = weight(current, end_, end_ + fade * window, middle)
              + weight(previous, end_ - window, end_, middle) + weight(carried, hold, zero, middle)
            if left <= target then high = middle else time = middle + 1 end
          end
        elseif target < current then
          -- In the next period, in which the current count is the previous one.
          time = fade == 0 and end_ or end_ + window - mul_div(target, window, 0, current)
        elseif used > target then
          time = end_ - mul_div(target - current, window, 0, previous)
        end
        local wait = time - now
        if want == 1 then next_after = wait
        elseif want == 2 then reset_after = wait
        else retry_after = wait end
      end
    end
  end
end
