  -- Fixed window: one counter that starts again at each multiple of the window.
  -- STATE count, start, end   MARK start   TTL the end
  elseif algorithm == 5 then
    if looking then
      local state = call('GET', key)
      counted, first, last = 0, 0, 0
      if state then
        if #state == 21 then counted, first, last = parse('<I7I7I7', state) else foreign = key end
        if counted > 4503599627370496 then foreign = key end
        local edge = first - first % window + window
        if edge < last then last = edge end
      end
      if now >= last then
        counted, first = 0, now - now % window
        last = first + window
      end
      if saved then saved[line] = { counted, first, last } end
    else
      if saved then counted, first, last = unpack(saved[line]) end
      if giving then
        if first ~= mark1 then units = 0 elseif units > counted then units = counted end
        counted = counted - units
      elseif units > 0 then
        counted = counted + units
        if counted > 4503599627370496 then counted = 4503599627370496 end
        mark1 = first
      end
      if units > 0 then store(key, pack('<I7I7I7', counted, first, last), last) end
      if counted > 0 then next_after, reset_after, retry_after = last - now, last - now, last - now end
    end
    free = limit > counted and limit - counted or 0
