  -- Fixed window: one counter that starts again at each multiple of the window.
  -- STATE count, start, end   MARK start   TTL the end, set once a period
  elseif algorithm == 5 then
    if looking then
      local state = read('GET', key)
      counted, first, last, fresh = 0, 0, 0, true
      if state then
        if #state == 21 then counted, first, last = parse('<I7I7I7', state) else foreign = key end
        if counted > 4503599627370496 then foreign = key end
        local edge = first - first % window + window
        fresh = edge < last
        if fresh then last = edge end
      end
      if now >= last then
        counted, first = 0, now - now % window
        last, fresh = first + window, true
      end
      free = limit > counted and limit - counted or 0
      if saved then saved[line] = { free, counted, first, last, fresh } end
    else
      if saved then free, counted, first, last, fresh = unpack(saved[line]) end
      if giving then
        if first ~= mark1 then units = 0 elseif units > counted then units = counted end
        counted = counted - units
      elseif units > 0 then
        counted = counted + units
        if counted > 4503599627370496 then counted = 4503599627370496 end
        mark1 = first
      end
      if units > 0 then
        if fresh then
          store(key, pack('<I7I7I7', counted, first, last), last)
        else
          call('SETRANGE', key, '0', pack('<I7I7I7', counted, first, last))
        end
        free = limit > counted and limit - counted or 0
      end
      if counted > 0 then
        next_after = last - now
        reset_after, retry_after = next_after, next_after
      end
    end
