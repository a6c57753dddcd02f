-- Ring: the log that sliding_log.lua and sliding_buckets.lua share. A record is 10 bytes: its time
-- modulo 2^48, and the running total of units modulo 2^32. Records of one time merge. What has left,
-- what is free and how long a charge waits are searches. Eight records make a block; in a block, the
-- totals after the first are relative to it, so that a refund changes one number a block.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    73 bytes of header, the newest block, a copy of the oldest, then a ring of `places` blocks
--          that has all but the newest. Most charges read and write only the first 233 bytes. A log
--          of one block has neither the copy nor the ring
-- RETURNS  the standing; mark: no record before the charge's has this time plus `shift`, which is how
--          times are kept: when the window grows by d, so does the shift, and all earlier charges are d
--          older; the number of the record
-- TTL      the end of the newest record; renewed when the key would expire before it, and then for an
--          eighth of the window more, so that most charges need not renew it
if in_ring then
  if not already_read then state = read('GETRANGE', key, '0', '232') end
  local header = state
  local known, state_window, shift, start, head, tail, places, until_ms, before_last, last_time,
    last_total, head_time, head_total = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  if #header >= 83 then
    known, state_window, shift, start, head, tail, places, until_ms, before_last, last_time,
      last_total, head_time, head_total = parse('<I7I6I7I4I6I6I4I7I4I7I4I7I4', header)
    if known > 9007199254740991 or head >= tail or places == 0 and tail - head > 8
      or places > 0 and #header < 233 then
      foreign, answering = true, false
      tail = head
    end
  elseif header ~= '' then
    foreign, answering = true, false
  end
  local origin = (known + shift) % 281474976710656
  -- What was charged under another window leaves by the shorter of the two.
  local shorter = state_window < window and state_window or window
  local seen = now > known and now or known
  local stored_last_time, at_newest = last_time, 73 + (tail - 1) % 8 * 10
  if buckets and state_window ~= window and tail > head then
    -- Under the new window no unit leaves later than one that is charged at `known`. All but the
    -- newest record are older than that.
    local latest = bucket_end(window, buckets, known) + window - shorter
    if last_time > latest then
      last_time = latest
      if tail == head + 1 then head_time = latest end
      header = sub(header, 1, at_newest) .. pack('<I6', (latest + shift) % 281474976710656)
        .. sub(header, at_newest + 7)
    end
  end
  -- `first` is the first record that still counts, `base` the running total before it. Its block is in
  -- `text` behind `from`.
  local first, base, first_time, first_total, text, from =
    head, start, head_time, head_total, header, 73
  -- The oldest record is in the newest block, or in the copy of its own block.
  if head - head % 8 < tail - 8 then from = 153 end
  if tail > head and head_time <= seen - shorter then
    if last_time <= seen - shorter then
      first, base = tail, last_total
    else
      local slot, time, total = (head + 1) % 8, 0, 0
      if slot > 0 then
        -- Often only the oldest record has left.
        time, total = parse('<I6I4', text, from + slot * 10 + 1)
        time = (time - origin) % 281474976710656
        time = known + (time < 140737488355328 and time or time - 281474976710656)
      end
      if slot > 0 and time > seen - shorter then
        first, first_time, base = head + 1, time, head_total
        first_total = (total + parse('<I4', text, from + 7)) % 4294967296
      else
        first, first_time, first_total, base, text, from =
          find(key, header, text, from, head, start, seen - shorter, nil)
      end
    end
  end
  local used = first < tail and (last_total - base) % 4294967296 or 0
  free = limit > used and limit - used or 0

  if answering and refunding then
    local stamp, charged = mark1 - shift, units
    units = 0
    if first < tail and mark2 >= first and mark2 < tail and stamp <= last_time then
      local index, _, total, before, block, at =
        find(key, header, text, from, first, base, stamp - 1, nil)
      if index == mark2 then
        units = (total - before) % 4294967296
        if units > charged then units = charged end
      end
      if units > 0 then
        -- Out of its own block: out of the totals from its own on, or out of the first alone, to which
        -- the others are relative.
        block = sub(block, at + 1, at + 80)
        local layout = '<' .. string.rep('I6I4', #block / 10)
        local numbers = { parse(layout, block) }
        local stop = index % 8 == 0 and 2 or #numbers - 1
        for i = index % 8 * 2 + 2, stop, 2 do
          numbers[i] = (numbers[i] - units) % 4294967296
        end
        block = pack(layout, unpack(numbers, 1, #numbers - 1))
        local number, newest = floor(index / 8), floor((tail - 1) / 8)
        local oldest_block, newest_block = sub(header, 154, 233), sub(header, 74, 153)
        if number == newest then
          newest_block = block .. sub(newest_block, #block + 1)
        else
          call('SETRANGE', key, 233 + number % places * 80, block)
          if number == floor(head / 8) then oldest_block = block end
          local bits, first_of_block = parse('<I6I4', newest_block)
          newest_block = pack('<I6I4', bits, (first_of_block - units) % 4294967296)
            .. sub(newest_block, 11)
        end
        -- Out of the first total of each block between, up to 32 blocks at a time.
        local next_block = number + 1
        while next_block < newest do
          local count, place = newest - next_block, next_block % places
          if count > 32 then count = 32 end
          if place + count > places then count = places - place end
          place = 233 + place * 80
          layout = '<' .. string.rep('I6I4c70', count)
          numbers = { parse(layout, call('GETRANGE', key, place, place + count * 80 - 1)) }
          for i = 2, count * 3, 3 do numbers[i] = (numbers[i] - units) % 4294967296 end
          call('SETRANGE', key, place, pack(layout, unpack(numbers, 1, count * 3)))
          next_block = next_block + count
        end
        if index == head then head_total = (head_total - units) % 4294967296 end
        if index == first then first_total = (first_total - units) % 4294967296 end
        if index < tail - 1 then before_last = (before_last - units) % 4294967296 end
        last_total = (last_total - units) % 4294967296
        used = used - units
        header = pack('<I7I6I7I4I6I6I4I7I4I7I4I7I4', known, state_window, shift, start, head, tail,
          places, until_ms, before_last, last_time, last_total, head_time, head_total)
          .. newest_block .. oldest_block
        if last_time < stored_last_time then
          -- A refund is no charge: the stored times stay those of the window of the last one.
          local stored_head_time = tail == head + 1 and stored_last_time or head_time
          call('SETRANGE', key, '0', pack('<I7I6I7I4I6I6I4I7I4I7I4I7I4', known, state_window, shift,
            start, head, tail, places, until_ms, before_last, stored_last_time, last_total,
            stored_head_time, head_total) .. sub(header, 74, at_newest)
            .. sub(state, at_newest + 1, at_newest + 6) .. sub(header, at_newest + 7))
        else
          call('SETRANGE', key, '0', header)
        end
        if floor(first / 8) == newest then
          text, from = header, 73
        elseif floor(first / 8) == number then
          text, from = block, 0
        end
      end
    end
  elseif answering then
    if free >= needed then units = max_cost < free and max_cost or free end
    if units > 0 then
      -- Drop what has left.
      head, start = first, base
      if tail > head and window > state_window then
        local growth = window - state_window
        shift = shift + growth
        first_time = first_time > growth and first_time - growth or 0
        last_time = last_time > growth and last_time - growth or 0
      end
      state_window, shorter, known = window, window, seen
      -- A bucket that is open stays open until it ends.
      local stamp, total = seen, base
      if tail > head then total = last_total end
      if tail > head and last_time > seen then
        stamp = last_time
      elseif buckets then
        stamp = bucket_end(window, buckets, seen)
      end
      -- A forced charge stops counting where the running total would wrap.
      local spend, room = units, 4294967295 - (total - base) % 4294967296
      if spend > room then spend = room end
      total = (total + spend) % 4294967296
      mark1 = buckets and seen + shift + 1 or seen + shift
      local slot, flush, flushed, ring = tail % 8, nil, nil, nil
      -- The copy of the oldest block is written when it is another one.
      local oldest_block, newest_block = from == 0 and text or nil, ''
      -- One time, one record. A log beyond all limits (forced charges) gets no more records either:
      -- its newest units come back together, late, never early.
      if tail > head and (stamp == last_time or tail - head >= 1048576) then
        slot = (tail - 1) % 8
        newest_block = sub(header, 74, 73 + slot * 10)
      else
        before_last = tail > head and last_total or base
        if tail == head then
          -- Nothing is left: begin a block. A log that is stored anew has other numbers than before.
          local seed = seen % 17592186044416 * 8
          head, slot = floor((tail + 7) / 8) * 8, 0
          if head < seed then head = seed end
          tail = head
        elseif slot == 0 then
          -- The newest block is full: it joins the ring.
          local oldest = floor(head / 8)
          flush, flushed = sub(header, 74, 153), (tail - 8) / 8
          local count = flushed - oldest + 1
          if count == 1 then oldest_block, text, from = flush, flush, 0 end
          if count > places or places > 8 and count < places / 4 then
            -- The ring grows by small steps, to hold little in reserve, and shrinks after a burst.
            local all = ''
            if count > 1 then
              local place, over = oldest % places, oldest % places + count - 1 - places
              local at = 233 + place * 80
              if over <= 0 then
                all = call('GETRANGE', key, at, at + (count - 1) * 80 - 1)
              else
                all = call('GETRANGE', key, at, 232 + places * 80)
                  .. call('GETRANGE', key, '233', 232 + over * 80)
              end
            end
            places = count > places and count + floor(count / 8) or 2 * count
            if places < count + 1 then places = count + 1 end
            ring = all .. flush .. string.rep('\0', (places - count) * 80)
            local behind = (places - oldest % places) * 80
            ring = sub(ring, behind + 1) .. sub(ring, 1, behind)
          end
        else
          newest_block = sub(header, 74, 73 + slot * 10)
        end
        tail = tail + 1
      end
      mark2 = tail - 1
      local relative = total
      if slot > 0 then relative = (total - parse('<I4', header, 80)) % 4294967296 end
      last_time, last_total = stamp, total
      if tail == head + 1 then first_time, first_total = stamp, total end
      first, used = head, (last_total - base) % 4294967296
      local spare, renew = until_ms * 1000 - stamp - window, false
      if spare <= 0 or spare > window / 8 + 2000 then
        until_ms, renew = floor((stamp + window + window / 8) / 1000) + 2, true
      end
      header = pack('<I7I6I7I4I6I6I4I7I4I7I4I7I4', known, state_window, shift, start, head, tail,
        places, until_ms, before_last, last_time, last_total, first_time, first_total)
        .. newest_block .. pack('<I6I4', (stamp + shift) % 281474976710656, relative)
      if places == 0 then
        store(key, header, until_ms * 1000)
      elseif ring then
        oldest_block = oldest_block or from == 153 and sub(text, 154, 233) or string.rep('\0', 80)
        store(key, header .. string.rep('\0', 70 - slot * 10) .. oldest_block .. ring,
          until_ms * 1000)
      else
        if oldest_block then
          call('SETRANGE', key, '0', header .. string.rep('\0', 70 - slot * 10) .. oldest_block)
        else
          call('SETRANGE', key, '0', header)
        end
        if flush then call('SETRANGE', key, 233 + flushed % places * 80, flush) end
        if for_test then
          call('PEXPIRE', key, '86400000')
        elseif renew then
          call('PEXPIREAT', key, format('%d', until_ms))
        end
      end
      if head - head % 8 >= tail - 8 then text, from = header, 73 end
    end
  end

  if answering then
    free = limit > used and limit - used or 0
    if used > 0 then
      -- The waits until one more unit, all units, and the cost are free. Often the oldest record
      -- suffices, or it takes the newest.
      local oldest, all_but_newest = (first_total - base) % 4294967296,
        (before_last - base) % 4294967296
      for want = 1, units > 0 and 2 or 3 do
        local wanted = want == 1 and free + 1 or want == 2 and limit or cost
        if wanted > free and wanted <= limit then
          local must_leave, time = used + wanted - limit, last_time
          if oldest >= must_leave then
            time = first_time
          elseif all_but_newest >= must_leave then
            local _
            _, time = find(key, header, text, from, first, base, nil, must_leave)
          end
          local wait = time - now + shorter
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
    end
  end
end
