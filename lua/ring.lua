  -- What the sliding log and the sliding buckets share: a string used as a ring of records.
  -- STATE  a header of 67 bytes, then `cap` places of 10 bytes: time modulo 2^48, and the running
  --        total of units modulo 2^32. Records of one stamp merge. What has left, what is free and
  --        how long a charge waits are searches; the header has copies of the oldest and the
  --        newest record, which usually suffice.
  -- MARK   the stamp plus the shift, which is how times are kept: when the window grows by d, so
  --        does the shift, and all that was charged before is d older
  -- TTL    the newest record's end; renewed when the key would expire before it, and then for an
  --        eighth of the window more, so that most charges need not renew it
  elseif s.algorithm <= 2 then
    if not seek then
      -- The bytes of n records from the one at `index` on.
      read = function(key, s, index, n)
        local place = s.head + index
        if place >= s.cap then place = place - s.cap end
        local from, over = 67 + place * 10, place + n - s.cap
        if over <= 0 then return call('GETRANGE', key, from, from + n * 10 - 1) end
        return call('GETRANGE', key, from, 66 + s.cap * 10)
          .. call('GETRANGE', key, '67', 66 + over * 10)
      end
      -- The first record from `low` to `high` that is stamped after `after`, or with which `units`
      -- have left. The one at `high` is such a record; the one before `low` exists and is not.
      seek = function(key, s, low, high, after, units)
        local reach = 8
        while true do
          local n = high - low + 1
          if n <= 24 or reach == 8 then
            if n > 24 then n = reach end
            local block, p = read(key, s, low - 1, n + 1), 11
            for index = low, low + n - 1 do
              local bits, total = parse('<I6I4', block, p)
              local ahead = (bits - s.origin) % 281474976710656
              if ahead >= 140737488355328 then ahead = ahead - 281474976710656 end
              local time = s.known + ahead
              if time < 0 then time = 0 end
              if after and time > after or units and (total - s.base) % 4294967296 >= units then
                return index, time, total, (parse('<I4', block, p - 4))
              end
              p = p + 10
            end
            low, reach = low + n, 0
          else
            local middle = floor((low + high) / 2)
            local bits, total = parse('<I6I4', read(key, s, middle, 1))
            local ahead = (bits - s.origin) % 281474976710656
            if ahead >= 140737488355328 then ahead = ahead - 281474976710656 end
            local time = s.known + ahead
            if time < 0 then time = 0 end
            if after and time > after or units and (total - s.base) % 4294967296 >= units then
              high = middle
            else
              low = middle + 1
            end
          end
        end
      end
    end

    if looking then
      local header = call('GETRANGE', key, '0', '66')
      s.known, s.held_window, s.shift, s.start, s.head, s.n, s.cap, s.until_ms = 0, 0, 0, 0, 0, 0, 0, 0
      s.head_time, s.head_total, s.last_time, s.last_total, s.before_last = 0, 0, 0, 0, 0
      if header ~= '' then
        if #header ~= 67 then return foreign(key) end
        local head_bits, last_bits
        s.known, s.held_window, s.shift, s.start, s.head, s.n, s.cap, s.until_ms, head_bits,
          s.head_total, last_bits, s.last_total, s.before_last =
          parse('<I7I6I7I4I4I4I4I7I6I4I6I4I4', header)
        if s.known > 9007199254740991 or s.head >= s.cap or s.n > s.cap then return foreign(key) end
        s.origin = (s.known + s.shift) % 281474976710656
        local ahead = (head_bits - s.origin) % 281474976710656
        if ahead >= 140737488355328 then ahead = ahead - 281474976710656 end
        s.head_time = s.known + ahead
        if s.head_time < 0 then s.head_time = 0 end
        ahead = (last_bits - s.origin) % 281474976710656
        if ahead >= 140737488355328 then ahead = ahead - 281474976710656 end
        s.last_time = s.known + ahead
        if s.last_time < 0 then s.last_time = 0 end
      end
      -- What was charged under another window leaves by the shorter of the two.
      s.leaving = s.held_window < s.window and s.held_window or s.window
      s.seen = now > s.known and now or s.known
      -- The first record that still counts, and the running total before it.
      s.first, s.base, s.first_time, s.first_total = 0, s.start, s.head_time, s.head_total
      if s.n > 0 and s.head_time + s.leaving <= s.seen then
        if s.last_time + s.leaving <= s.seen then
          s.first, s.base = s.n, s.last_total
        else
          s.first, s.first_time, s.first_total, s.base =
            seek(key, s, 1, s.n - 1, s.seen - s.leaving, nil)
        end
      end
      s.used = 0
      if s.first < s.n then s.used = (s.last_total - s.base) % 4294967296 end
    elseif giving then
      local stamp, asked = s.mark1 - s.shift, units
      units = 0
      if stamp >= 0 and s.first < s.n and stamp >= s.first_time and stamp <= s.last_time then
        local index, time, total, before = s.first, s.first_time, s.first_total, s.base
        if stamp > time then
          if stamp == s.last_time then
            index, time, total, before = s.n - 1, stamp, s.last_total, s.before_last
          else
            index, time, total, before = seek(key, s, s.first + 1, s.n - 1, stamp - 1, nil)
          end
        end
        if time == stamp then
          units = (total - before) % 4294967296
          if units > asked then units = asked end
        end
        if units > 0 then
          -- It and all that came after it.
          local from = index
          while from < s.n do
            local k = s.n - from
            if k > 50 then k = 50 end
            local place = (s.head + from) % s.cap
            if place + k > s.cap then k = s.cap - place end
            local layout = string.rep('I6I4', k)
            local records = { parse('<' .. layout, read(key, s, from, k)) }
            for j = 2, 2 * k, 2 do records[j] = (records[j] - units) % 4294967296 end
            call('SETRANGE', key, 67 + place * 10, pack('<' .. layout, unpack(records, 1, 2 * k)))
            from = from + k
          end
          if index == 0 then s.head_total = (s.head_total - units) % 4294967296 end
          if index == s.first then s.first_total = (s.first_total - units) % 4294967296 end
          if index < s.n - 1 then s.before_last = (s.before_last - units) % 4294967296 end
          s.last_total = (s.last_total - units) % 4294967296
          s.used = s.used - units
          local shift = s.shift
          call('SETRANGE', key, '0', pack('<I7I6I7I4I4I4I4I7I6I4I6I4I4', s.known, s.held_window, shift,
            s.start, s.head, s.n, s.cap, s.until_ms, (s.head_time + shift) % 281474976710656,
            s.head_total, (s.last_time + shift) % 281474976710656, s.last_total, s.before_last))
        end
      end
    elseif units > 0 then
      -- Drop what has left.
      local place = s.head + s.first
      if place >= s.cap and s.cap > 0 then place = place - s.cap end
      s.head, s.n, s.start = place, s.n - s.first, s.base
      s.first = 0
      if s.n > 0 and s.window > s.held_window then
        local growth = s.window - s.held_window
        s.shift = s.shift + growth
        s.first_time = s.first_time > growth and s.first_time - growth or 0
        s.last_time = s.last_time > growth and s.last_time - growth or 0
      end
      s.held_window, s.leaving, s.known = s.window, s.window, s.seen
      s.origin = (s.known + s.shift) % 281474976710656
      local stamp, total = s.stamp, s.base
      if s.n > 0 then
        total = s.last_total
        if s.last_time > stamp then stamp = s.last_time end
      end
      -- A forced charge stops counting where the running total would wrap.
      local spend, room = units, 4294967295 - (total - s.base) % 4294967296
      if spend > room then spend = room end
      -- One stamp, one record. A log beyond all limits (forced charges) has no more records either:
      -- its newest units come back together, late, never early.
      local merge, grown = s.n > 0 and (stamp == s.last_time or s.n >= 1048576), nil
      if not merge then
        -- By small steps, so that little is held in reserve; and back after a burst.
        if s.n == s.cap or s.cap > 64 and s.n < s.cap / 4 then
          grown = s.n > 0 and read(key, s, 0, s.n) or ''
          s.head = 0
          s.cap = s.n == s.cap and s.n + (s.n >= 32 and floor(s.n / 8) or 4) or 2 * s.n
          if s.cap < s.n + 4 then s.cap = s.n + 4 end
        end
        s.before_last, s.n = total, s.n + 1
      end
      s.last_time, s.last_total = stamp, (total + spend) % 4294967296
      if s.n == 1 then s.first_time, s.first_total = s.last_time, s.last_total end
      s.head_time, s.head_total = s.first_time, s.first_total
      s.used = (s.last_total - s.base) % 4294967296
      s.mark1 = stamp + s.shift
      local needed, renew = stamp + s.window, false
      local longest = floor((needed + s.window / 8) / 1000) + 2
      if s.until_ms * 1000 <= needed or s.until_ms > longest then
        s.until_ms, renew = longest, true
      end
      local shift = s.shift
      local last_bits = s.mark1 % 281474976710656
      local header = pack('<I7I6I7I4I4I4I4I7I6I4I6I4I4', s.known, s.held_window, shift, s.start,
        s.head, s.n, s.cap, s.until_ms, (s.first_time + shift) % 281474976710656, s.head_total,
        last_bits, s.last_total, s.before_last)
      local record = pack('<I6I4', last_bits, s.last_total)
      if grown then
        store(key, header .. grown .. record .. string.rep('\0', (s.cap - s.n) * 10), s.until_ms * 1000)
      else
        place = s.head + s.n - 1
        if place >= s.cap then place = place - s.cap end
        if place == 0 then
          call('SETRANGE', key, '0', header .. record)
        else
          call('SETRANGE', key, 67 + place * 10, record)
          call('SETRANGE', key, '0', header)
        end
        if for_test then
          call('PEXPIRE', key, '86400000')
        elseif renew then
          call('PEXPIREAT', key, format('%d', s.until_ms))
        end
      end
    end
    s.free = s.limit > s.used and s.limit - s.used or 0
    if not looking and s.used > 0 then
      for want = 1, 3 do
        local wanted = s.free + 1
        if want == 2 then wanted = s.limit elseif want == 3 then wanted = units > 0 and 0 or s.cost end
        if wanted > s.free and wanted <= s.limit then
          local must_leave, time = s.used + wanted - s.limit, s.last_time
          -- Often the oldest record suffices, or it takes the newest.
          if (s.first_total - s.base) % 4294967296 >= must_leave then
            time = s.first_time
          elseif (s.before_last - s.base) % 4294967296 >= must_leave then
            local _
            _, time = seek(key, s, s.first + 1, s.n - 1, nil, must_leave)
          end
          local wait = time + s.leaving - now
          if wait < 0 then wait = 0 end
          if want == 1 then next_after = wait
          elseif want == 2 then reset_after = wait
          else retry_after = wait end
        end
      end
    end
