  -- Sliding counter: two periods, the older weighted by its overlap with the trailing window. The
  -- estimate is ceil(previous * (last - now) / length) + current.
  -- STATE current, previous, first, last, before, window   MARK first
  -- TTL one window after the period
  elseif s.algorithm == 3 then
    if looking then
      local state, window = call('GET', key), s.window
      local current, previous, first, last, before, old = 0, 0, 0, 0, 0, 0
      if state then
        if #state ~= 41 then return foreign(key) end
        current, previous, first, last, before, old = parse('<I7I7I7I7I7I6', state)
        if current > 4503599627370496 then return foreign(key) end
        if first + window < last then last = first + window end
      end
      -- What was counted under another window leaves by the shorter of the two.
      local following = old < window and old or window
      if now >= last then
        if now < last + following then
          current, previous, before, first, last = 0, current, first, last, last + following
          old = window
        else
          current, previous, first = 0, 0, now - now % window
          before, last, old, following = first, first + window, window, window
        end
      end
      s.current, s.previous, s.first, s.last, s.before = current, previous, first, last, before
      s.old, s.following = old, following
    else
      local changed = units > 0
      if giving then
        if s.mark1 == s.first then
          if units > s.current then units = s.current end
          s.current = s.current - units
        elseif s.mark1 == s.before then
          if units > s.previous then units = s.previous end
          s.previous = s.previous - units
        else
          units, changed = 0, false
        end
      elseif changed then
        s.current = s.current + units
        if s.current > 4503599627370496 then s.current = 4503599627370496 end
        s.mark1 = s.first
      end
      if changed then
        s.following = s.old < s.window and s.old or s.window
        store(key, pack('<I7I7I7I7I7I6', s.current, s.previous, s.first, s.last, s.before, s.old),
          s.last + s.old)
      end
    end
    local length, passed = s.last - s.first, now > s.first and now or s.first
    local estimate = s.current
    if s.previous > 0 then estimate = estimate + mul_div_ceil(s.previous, s.last - passed, length) end
    s.free = s.limit > estimate and s.limit - estimate or 0
    if not looking and estimate > 0 then
      for want = 1, 3 do
        local wanted = s.free + 1
        if want == 2 then wanted = s.limit elseif want == 3 then wanted = units > 0 and 0 or s.cost end
        if wanted > s.free and wanted <= s.limit then
          -- When the estimate comes down to `most`: in this period, or in the next one, in which
          -- what is current now will be the previous.
          local most, time = s.limit - wanted, now
          if most < s.current then
            time = s.last + s.following - mul_div(most, s.following, 0, s.current)
          elseif estimate > most then
            time = s.last - mul_div(most - s.current, length, 0, s.previous)
          end
          local wait = time > now and time - now or 0
          if want == 1 then next_after = wait
          elseif want == 2 then reset_after = wait
          else retry_after = wait end
        end
      end
    end
