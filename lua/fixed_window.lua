  -- Fixed window: one counter that starts again at each multiple of the window.
  -- STATE count, start, end   MARK start   TTL the end
  elseif s.algorithm == 5 then
    if looking then
      local state, counted, first, last = call('GET', key), 0, 0, 0
      if state then
        if #state ~= 21 then return foreign(key) end
        counted, first, last = parse('<I7I7I7', state)
        if counted > 4503599627370496 then return foreign(key) end
        local edge = first - first % s.window + s.window
        if edge < last then last = edge end
      end
      if now >= last then
        counted, first = 0, now - now % s.window
        last = first + s.window
      end
      s.counted, s.first, s.last = counted, first, last
    else
      if giving then
        if s.first ~= s.mark1 then units = 0 elseif units > s.counted then units = s.counted end
        s.counted = s.counted - units
      elseif units > 0 then
        s.counted = s.counted + units
        if s.counted > 4503599627370496 then s.counted = 4503599627370496 end
        s.mark1 = s.first
      end
      if units > 0 then store(key, pack('<I7I7I7', s.counted, s.first, s.last), s.last) end
    end
    s.free = s.limit > s.counted and s.limit - s.counted or 0
    if not looking then
      local wait = s.last - now
      if s.free < s.limit then next_after, reset_after = wait, wait end
      if s.cost > s.free then retry_after = wait end
    end
