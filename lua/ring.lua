  -- What the sliding log and the sliding buckets share: a string that holds records in blocks of
  -- eight. A record is 10 bytes: its time modulo 2^48, and a running total of units modulo 2^32;
  -- within a block the totals after the first are relative to it, so that a refund touches one
  -- number a block. Records of one stamp merge. What has left, what is free and how long a charge
  -- waits are searches.
  -- STATE  73 bytes of header, the newest block, a copy of the oldest, then a ring of `places`
  --        blocks that has all but the newest. Most charges read and write the first 233 bytes
  --        alone. A log of one block has neither the copy nor the ring.
  -- MARK   the stamp plus the shift, which is how times are kept: when the window grows by d, so
  --        does the shift, and all that was charged before is d older
  -- TTL    the newest record's end; renewed when the key would expire before it, and then for an
  --        eighth of the window more, so that most charges need not renew it
  elseif algorithm <= 2 then
    if not find then
      -- The first record from `index` on that is stamped after `after`, or with which `wanted`
      -- units have left: its index, time and total, the total before it, and its block. The block
      -- of `index` is in `text` behind `from`, `before` is the total before that record.
      find = function(key, header, text, from, index, before, tail, places, known, origin, base, after, wanted)
        local newest, block, near = floor((tail - 1) / 8), floor(index / 8), true
        while block <= newest do
          local stop, first_total = block * 8 + 7, parse('<I4', text, from + 7)
          if stop >= tail then stop = tail - 1 end
          for i = index, stop do
            local bits, total = parse('<I6I4', text, from + i % 8 * 10 + 1)
            if i % 8 > 0 then total = (total + first_total) % 4294967296 end
            local time = (bits - origin) % 281474976710656
            time = known + (time < 140737488355328 and time or time - 281474976710656)
            if time < 0 then time = 0 end
            if after and time > after or wanted and (total - base) % 4294967296 >= wanted then
              return i, time, total, before, text, from
            end
            before = total
          end
          block = block + 1
          if not near then
            -- Not here either: by halves, looking at the last record of a block.
            local high = newest
            while block < high do
              local middle = floor((block + high) / 2)
              local place = 233 + middle % places * 80
              local probe = call('GETRANGE', key, place, place + 79)
              local bits, total = parse('<I6I4', probe, 71)
              total = (total + parse('<I4', probe, 7)) % 4294967296
              local time = (bits - origin) % 281474976710656
              time = known + (time < 140737488355328 and time or time - 281474976710656)
              if time < 0 then time = 0 end
              if after and time > after or wanted and (total - base) % 4294967296 >= wanted then
                high = middle
              else
                block, before = middle + 1, total
              end
            end
          end
          near, index = false, block * 8
          if block == newest then
            text, from = header, 73
          elseif block < newest then
            local place = 233 + block % places * 80
            text, from = call('GETRANGE', key, place, place + 79), 0
          end
        end
      end
    end

    if looking then
      header = read('GETRANGE', key, '0', '232')
      text, from = header, 73
      if #header >= 83 then
        known, held_window, shift, start, head, tail, places, until_ms, before_last, last_time,
          last_total, head_time, head_total = parse('<I7I6I7I4I6I6I4I7I4I7I4I7I4', header)
        if known > 9007199254740991 or head >= tail or places == 0 and tail - head > 8
          or places > 0 and #header < 233 then
          foreign = key
          tail = head
        end
        origin = (known + shift) % 281474976710656
        -- The oldest record is in the newest block, or in the copy of its own.
        if head - head % 8 < tail - 8 then from = 153 end
      else
        if header ~= '' then foreign = key end
        known, held_window, shift, start, head, tail, places, until_ms, before_last, last_time,
          last_total, head_time, head_total = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
      end
      -- What was charged under another window leaves by the shorter of the two.
      leaving = held_window < window and held_window or window
      seen = now > known and now or known
      -- The first record that still counts, and the running total before it.
      first, base, first_time, first_total = head, start, head_time, head_total
      if tail > head and head_time <= seen - leaving then
        if last_time <= seen - leaving then
          first, base = tail, last_total
        else
          local slot, time, total = (head + 1) % 8, 0, 0
          if slot > 0 then
            -- Often it is but the oldest that has left.
            time, total = parse('<I6I4', text, from + slot * 10 + 1)
            time = (time - origin) % 281474976710656
            time = known + (time < 140737488355328 and time or time - 281474976710656)
          end
          if slot > 0 and time > seen - leaving then
            first, first_time, base = head + 1, time, head_total
            first_total = (total + parse('<I4', text, from + 7)) % 4294967296
          else
            first, first_time, first_total, base, text, from = find(key, header, text, from, head,
              start, tail, places, known, origin, start, seen - leaving, nil)
          end
        end
      end
      used = first < tail and (last_total - base) % 4294967296 or 0
      free = limit > used and limit - used or 0
      if saved then
        saved[line] = { free, header, text, from, known, held_window, shift, start, head, tail, places,
          until_ms, before_last, last_time, last_total, origin, leaving, seen, first, base,
          first_time, first_total, used, head_time, head_total }
      end
    else
      if saved then
        free, header, text, from, known, held_window, shift, start, head, tail, places, until_ms,
          before_last, last_time, last_total, origin, leaving, seen, first, base, first_time,
          first_total, used, head_time, head_total = unpack(saved[line])
      end
      if giving then
        local stamp, asked = mark1 - shift, units
        units = 0
        if stamp >= 0 and first < tail and stamp >= first_time and stamp <= last_time then
          local index, time, total, before, block_text, at = find(key, header, text, from, first,
            base, tail, places, known, origin, base, stamp - 1, nil)
          if time == stamp then
            units = (total - before) % 4294967296
            if units > asked then units = asked end
          end
          if units > 0 then
            -- Out of its own block, and out of the first record of each that came after.
            local block, newest = floor(index / 8), floor((tail - 1) / 8)
            local layout = '<' .. string.rep('I6I4', (#block_text - at < 80 and #block_text - at or 80) / 10)
            local numbers = { parse(layout, block_text, at + 1) }
            local stop = index % 8 == 0 and 2 or #numbers - 1
            for i = index % 8 * 2 + 2, stop, 2 do
              numbers[i] = (numbers[i] - units) % 4294967296
            end
            block_text = pack(layout, unpack(numbers, 1, #numbers - 1))
            local front, tail_text = sub(header, 154, 233), sub(header, 74, 153)
            if block == newest then
              tail_text = block_text .. sub(tail_text, #block_text + 1)
            else
              call('SETRANGE', key, 233 + block % places * 80, block_text)
              if block == floor(head / 8) then front = block_text end
              local bits, total = parse('<I6I4', tail_text)
              tail_text = pack('<I6I4', bits, (total - units) % 4294967296) .. sub(tail_text, 11)
            end
            block = block + 1
            while block < newest do
              local k, place = newest - block, block % places
              if k > 32 then k = 32 end
              if place + k > places then k = places - place end
              place = 233 + place * 80
              local layout = '<' .. string.rep('I6I4c70', k)
              numbers = { parse(layout, call('GETRANGE', key, place, place + k * 80 - 1)) }
              for i = 2, k * 3, 3 do numbers[i] = (numbers[i] - units) % 4294967296 end
              call('SETRANGE', key, place, pack(layout, unpack(numbers, 1, k * 3)))
              block = block + k
            end
            if index == first then first_total = (first_total - units) % 4294967296 end
            if index < tail - 1 then before_last = (before_last - units) % 4294967296 end
            last_total = (last_total - units) % 4294967296
            used = used - units
            if index == head then head_total = (head_total - units) % 4294967296 end
            header = pack('<I7I6I7I4I6I6I4I7I4I7I4I7I4', known, held_window, shift, start, head, tail,
              places, until_ms, before_last, last_time, last_total, head_time, head_total)
              .. tail_text .. front
            call('SETRANGE', key, '0', header)
            local oldest = floor(first / 8)
            if oldest == newest then
              text, from = header, 73
            elseif oldest == floor(index / 8) then
              text, from = block_text, 0
            end
          end
        end
      elseif units > 0 then
        -- Drop what has left.
        head, start = first, base
        if tail > head and window > held_window then
          local growth = window - held_window
          shift = shift + growth
          first_time = first_time > growth and first_time - growth or 0
          last_time = last_time > growth and last_time - growth or 0
        end
        held_window, leaving, known = window, window, seen
        origin = (known + shift) % 281474976710656
        local total = base
        if tail > head then
          total = last_total
          if last_time > stamp then stamp = last_time end
        end
        -- A forced charge stops counting where the running total would wrap.
        local spend, room = units, 4294967295 - (total - base) % 4294967296
        if spend > room then spend = room end
        total = (total + spend) % 4294967296
        mark1 = stamp + shift
        local slot, ring, flush, block = tail % 8, nil, nil, nil
        -- The copy of the oldest block is written when it is another one.
        local front, tail_text = from == 0 and text or nil, ''
        -- One stamp, one record. A log beyond all limits (forced charges) has no more records
        -- either: its newest units come back together, late, never early.
        if tail > head and (stamp == last_time or tail - head >= 1048576) then
          slot = (tail - 1) % 8
          tail_text = sub(header, 74, 73 + slot * 10)
        else
          before_last = tail > head and last_total or base
          if tail == head then
            -- Nothing is left: begin a block.
            head, tail, slot = floor((tail + 7) / 8) * 8, floor((tail + 7) / 8) * 8, 0
          elseif slot == 0 then
            -- The newest block is full: it joins the ring.
            local oldest = floor(head / 8)
            block = (tail - 8) / 8
            local n = block - oldest + 1
            flush = sub(header, 74, 153)
            if n == 1 then front, text, from = flush, flush, 0 end
            if n > places or places > 8 and n < places / 4 then
              -- By small steps, so that little is held in reserve; and back after a burst.
              local all = ''
              if n > 1 then
                local place, over = oldest % places, oldest % places + n - 1 - places
                local at = 233 + place * 80
                if over <= 0 then
                  all = call('GETRANGE', key, at, at + (n - 1) * 80 - 1)
                else
                  all = call('GETRANGE', key, at, 232 + places * 80)
                    .. call('GETRANGE', key, '233', 232 + over * 80)
                end
              end
              places = n > places and n + floor(n / 8) or 2 * n
              if places < n + 1 then places = n + 1 end
              ring = all .. flush .. string.rep('\0', (places - n) * 80)
              local behind = (places - oldest % places) * 80
              ring = sub(ring, behind + 1) .. sub(ring, 1, behind)
            end
          else
            tail_text = sub(header, 74, 73 + slot * 10)
          end
          tail = tail + 1
        end
        local bits, relative = mark1 % 281474976710656, total
        if slot > 0 then relative = (total - parse('<I4', header, 80)) % 4294967296 end
        last_time, last_total = stamp, total
        if tail == head + 1 then first_time, first_total = stamp, total end
        first = head
        used = (last_total - base) % 4294967296
        local spare, renew = until_ms * 1000 - stamp - window, false
        if spare <= 0 or spare > window / 8 + 2000 then
          until_ms, renew = floor((stamp + window + window / 8) / 1000) + 2, true
        end
        local state = pack('<I7I6I7I4I6I6I4I7I4I7I4I7I4', known, held_window, shift, start, head, tail,
          places, until_ms, before_last, last_time, last_total, first_time, first_total)
          .. tail_text .. pack('<I6I4', bits, relative)
        if places == 0 then
          store(key, state, until_ms * 1000)
        else
          if ring then
            front = front or from == 153 and sub(text, 154, 233) or string.rep('\0', 80)
            state = state .. string.rep('\0', 70 - slot * 10) .. front
            store(key, state .. ring, until_ms * 1000)
          else
            if front then
              call('SETRANGE', key, '0', state .. string.rep('\0', 70 - slot * 10) .. front)
            else
              call('SETRANGE', key, '0', state)
            end
            if flush then call('SETRANGE', key, 233 + block % places * 80, flush) end
            if for_test then
              call('PEXPIRE', key, '86400000')
            elseif renew then
              call('PEXPIREAT', key, format('%d', until_ms))
            end
          end
        end
        header = state
        if head - head % 8 >= tail - 8 then text, from = state, 73 end
      end
    end
    if not looking and used > 0 then
      free = limit > used and limit - used or 0
      -- Often the oldest record suffices, or it takes the newest.
      local oldest, all_but_newest = (first_total - base) % 4294967296, (before_last - base) % 4294967296
      for want = 1, units > 0 and 2 or 3 do
        local wanted = want == 1 and free + 1 or want == 2 and limit or cost
        if wanted > free and wanted <= limit then
          local must_leave, time = used + wanted - limit, last_time
          if oldest >= must_leave then
            time = first_time
          elseif all_but_newest >= must_leave then
            local _
            _, time = find(key, header, text, from, first, base, tail, places, known, origin, base,
              nil, must_leave)
          end
          local wait = time - now + leaving
          if wait < 0 then wait = 0 end
          if want == 1 then
            next_after, retry_after = wait, wait
          elseif want == 2 then
            reset_after = wait
            if cost == free + 1 then break end
          else
            retry_after = wait
          end
        end
      end
    elseif not looking then
      free = limit
    end
