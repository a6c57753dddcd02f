  -- Sliding counter: two periods, the older weighted by its overlap with the trailing window. The
  -- estimate is ceil(previous * (last - now) / length) + current.
  -- STATE current, previous, first, last, before, window   MARK first
  -- TTL one window after the period, set once a period
  elseif algorithm == 3 then
    if looking then
      local state = read('GET', key)
      current, previous, first, last, before, old, fresh = 0, 0, 0, 0, 0, 0, true
      if state then
        if #state == 41 then
          current, previous, first, last, before, old = parse('<I7I7I7I7I7I6', state)
        else
          foreign = key
        end
        if current > 4503599627370496 then foreign = key end
        fresh = first + window < last
        if fresh then last = first + window end
      end
      -- What was counted under another window leaves by the shorter of the two.
      following = old < window and old or window
      if now >= last then
        fresh = true
        if now < last + following then
          current, previous, before, first, last = 0, current, first, last, last + following
          old = window
        else
          current, previous, first = 0, 0, now - now % window
          before, last, old, following = first, first + window, window, window
        end
      end
    else
      if saved then
        free, current, previous, first, last, before, old, following, fresh = unpack(saved[line])
      end
      local changed = units > 0
      if giving then
        if mark1 == first then
          if units > current then units = current end
          current = current - units
        elseif mark1 == before then
          if units > previous then units = previous end
          previous = previous - units
        else
          units, changed = 0, false
        end
      elseif changed then
        current = current + units
        if current > 4503599627370496 then current = 4503599627370496 end
        mark1 = first
      end
      if changed then
        following = old < window and old or window
        local state = pack('<I7I7I7I7I7I6', current, previous, first, last, before, old)
        if fresh then store(key, state, last + old) else call('SETRANGE', key, '0', state) end
      end
    end
    local length, estimate = last - first, current
    if previous > 0 then
      local overlap, rest = mul_div(previous, last - (now > first and now or first), 0, length)
      estimate = estimate + overlap + (rest > 0 and 1 or 0)
    end
    free = limit > estimate and limit - estimate or 0
    if looking then
      if saved then
        saved[line] = { free, current, previous, first, last, before, old, following, fresh }
      end
    elseif estimate > 0 then
      for want = 1, units > 0 and 2 or 3 do
        local wanted = want == 1 and free + 1 or want == 2 and limit or cost
        if wanted > free and wanted <= limit then
          -- When the estimate comes down to `target`: in this period, or in the next one, in which
          -- what is current now will be the previous.
          local target, time = limit - wanted, now
          if target < current then
            time = last + following - mul_div(target, following, 0, current)
          elseif estimate > target then
            time = last - mul_div(target - current, length, 0, previous)
          end
          local wait = time > now and time - now or 0
          if want == 1 then next_after = wait
          elseif want == 2 then reset_after = wait
          else retry_after = wait end
        end
      end
    end
