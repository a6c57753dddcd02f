-- Ring: the log that sliding_log.lua and sliding_buckets.lua share. A record is 10 bytes: its time
-- modulo 2^48, and the running total of units modulo 2^32. Records of one time merge. What has left,
-- what is free and how long a charge waits are searches. Eight records make a block; in a block, the
-- totals after the first are relative to it, so that a refund changes one number a block.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    of a short log (up to 41 records, and one life): 24 bytes of header, then the records, with
--          no total relative to another. Each charge writes all of it, but for places of records that
--          have left. Its length is 4 modulo 10
--          of a long log: 78 bytes of header, the newest block, a copy of the oldest, then a ring of
--          `places` blocks that has all but the newest. Most charges read only the first 438 bytes, and
--          write only the first 238. A log of one block has neither the copy nor the ring. A record
--          counts for `life`, those before number `old_end` for the shorter `old_life`: see
--          src/algorithm/ring.rs. Its length is 8 modulo 10
-- RETURNS  the standing; mark: the number of the record
-- TTL      the end of the newest record, and up to a second and an eighth of the window more, so that most
--          charges need not renew it. A short log expires at a multiple of that time, a long log says when
if in_ring then
  local long_header = '<I7I6I6I6I4I6I6I4I7I4I7I4I7I4'
  local old_life, old_end, places, known, state_window, until_ms, start, head, tail, before_last, last_time,
    last_total, head_time, head_total = 0, 0, 0
  local is_short, at_newest = #state % 10 == 4, 0
  if is_short and #state >= 34 then
    local count
    known, state_window, count, head, start, head_time, head_total = parse('<I7I6BI6I4I6I4', state)
    tail, before_last, last_time, last_total, until_ms = head + count, start, head_time, head_total, 0
    at_newest = count * 10 + 14
    foreign = count == 0 or #state < at_newest + 10
    if count > 1 and not foreign then
      before_last, last_time, last_total = parse('<I4I6I4', state, at_newest - 3)
    end
    -- No charge is later than the newest record.
    last_time = known + (last_time - known) % 281474976710656
    head_time = known - 140737488355328 + (head_time - known + 140737488355328) % 281474976710656
  elseif #state >= 88 then
    known, state_window, old_life, old_end, start, head, tail, places, until_ms, before_last,
      last_time, last_total, head_time, head_total = parse(long_header, state)
    local newest = tail - 1
    at_newest = 78 + newest % 8 * 10
    local blocks = (newest - newest % 8 - head + head % 8) / 8
    foreign = old_life > state_window or old_end > newest or head > newest or newest - head > 1048576
      or head == newest and head_time < last_time
      or blocks > places or places > 147457
      or #state < (places > 0 and 238 or at_newest + 10)
  else
    known, state_window, until_ms, start, head, tail, before_last, last_time, last_total, head_time,
      head_total = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  end
  if state ~= '' and (foreign or known > 9007199254740991 or state_window == 0
    or state_window > 34560000000000 or last_time > known + state_window or head_time > last_time) then
    foreign = true
    tail = head
  end
  -- The bytes that a charge may write without a renewal of the expiry of a short log.
  local stored_bytes = is_short and state_window == window and #state or 0
  if not foreign and known > now + state_window then
    -- The clock has been set back: everything is taken as charged now, by the newest record.
    is_short, known, head, places, old_end, before_last = true, now, tail - 1, 0, 0, start
    last_time, head_time, head_total, at_newest, stored_bytes = now, now, last_total, 24, 0
    state = pack('<I7I6BI6I4', known, state_window, 1, head, start)
      .. pack('<I6I4', now % 281474976710656, last_total)
    written, expires = state, now + state_window + state_window / 8 + 1000000
  end
  local header = state
  -- Units that were charged under another window leave by the shorter of the two.
  local life = state_window < window and state_window or window
  local short_life = old_life < window and old_life or window
  local seen, stored_last_time = now > known and now or known, last_time
  if state_window ~= window and tail > head and last_time > known then
    -- If the window has grown, the open bucket ends at the last charge. If it has shrunk, the open bucket
    -- ends with the new bucket that holds the last charge. All but the newest record are older than that.
    local latest = known
    if buckets and window < state_window then latest = bucket_end(window, buckets, known) end
    if last_time > latest then
      last_time = latest
      if tail == head + 1 then head_time = latest end
      header = string.sub(header, 1, at_newest) .. pack('<I6', latest % 281474976710656)
        .. string.sub(header, at_newest + 7)
    end
  end
  -- `first` is the first record that still counts, `base` the running total before it. Its block is in
  -- `text` behind `from`.
  local first, base, first_time, first_total, text, from =
    head, start, head_time, head_total, header, is_short and 24 or 78
  -- The oldest record is in the newest block, or in the copy of its own block.
  if not is_short and head - head % 8 < tail - 8 then from = 158 end
  if tail > head and head_time + (head < old_end and short_life or life) <= seen then
    if last_time + life <= seen then
      first, base = tail, last_total
    else
      local slot, time, total = is_short and 1 or (head + 1) % 8, 0, 0
      if slot > 0 then
        -- Often only the oldest record has left.
        time, total = parse('<I6I4', text, from + slot * 10 + 1)
        time = known - 140737488355328 + (time - known + 140737488355328) % 281474976710656
      end
      if slot > 0 and time + (head + 1 < old_end and short_life or life) > seen then
        first, first_time, base = head + 1, time, head_total
        first_total = is_short and total or (total + parse('<I4', text, from + 7)) % 4294967296
      else
        local _
        first, first_time, _, first_total, base, text, from =
          find(key, header, text, from, head, start, window, seen, nil, nil, ring_at)
      end
    end
  end
  if in_flight and first < tail and first_total == base then
    -- The oldest records whose units were all refunded leave at once.
    if last_total == base then
      first = tail
    else
      local _
      first, first_time, _, first_total, base, text, from =
        find(key, header, text, from, first, base, window, nil, 1, nil, ring_at)
    end
  end
  local used = first < tail and (last_total - base) % 4294967296 or 0
  free = limit > used and limit - used or 0
  local commits = answering and not foreign
  if is_followed and not foreign then
    admitted, foreign, last =
      decide(operation, now, charge + 1, admitted and free >= required)
    if foreign then return nil, foreign end
  end
  if commits and operation == 'g' then
    local charged = units
    units = 0
    if mark1 >= first and mark1 < tail then
      local index, _, _, total, before, block, at =
        find(key, header, text, from, first, base, window, nil, nil, mark1, ring_at)
      units = (total - before) % 4294967296
      if units > charged then units = charged end
      local number, newest = math.floor(index / 8), math.floor((tail - 1) / 8)
      local oldest_block, newest_block = string.sub(header, 159, 238), string.sub(header, 79, 158)
      if units > 0 and is_short then
        -- Subtract the units from the totals of the record and of those behind it.
        local layout = '<' .. string.rep('I6I4', tail - head)
        local numbers = { parse(layout, header, 25) }
        for i = (index - head) * 2 + 2, (tail - head) * 2, 2 do
          numbers[i] = (numbers[i] - units) % 4294967296
        end
        header = string.sub(header, 1, 24) .. pack(layout, unpack(numbers, 1, (tail - head) * 2))
      elseif units > 0 then
        -- Subtract the units in the block of the record: from the totals from its own on, or from the
        -- first total alone, because the others are relative to it.
        block = string.sub(block, at + 1, at + 80)
        local layout = '<' .. string.rep('I6I4', #block / 10)
        local numbers = { parse(layout, block) }
        local stop = index % 8 == 0 and 2 or #numbers - 1
        for i = index % 8 * 2 + 2, stop, 2 do
          numbers[i] = (numbers[i] - units) % 4294967296
        end
        block = pack(layout, unpack(numbers, 1, #numbers - 1))
        if number == newest then
          newest_block = block .. string.sub(newest_block, #block + 1)
        else
          call('SETRANGE', key, ring_at + number % places * 80, block)
          if number == math.floor(head / 8) then oldest_block = block end
          local bits, first_of_block = parse('<I6I4', newest_block)
          newest_block = pack('<I6I4', bits, (first_of_block - units) % 4294967296)
            .. string.sub(newest_block, 11)
        end
        -- Subtract the units from the first total of each block between, up to 32 blocks at a time.
        local next_block = number + 1
        while next_block < newest do
          local count, place = newest - next_block, next_block % places
          if count > 32 then count = 32 end
          if place + count > places then count = places - place end
          place = ring_at + place * 80
          layout = '<' .. string.rep('I6I4c70', count)
          local blocks = call('GETRANGE', key, place, place + count * 80 - 1)
          numbers = { parse(layout, blocks .. string.rep('\0', count * 80 - #blocks)) }
          for i = 2, count * 3, 3 do numbers[i] = (numbers[i] - units) % 4294967296 end
          call('SETRANGE', key, place, pack(layout, unpack(numbers, 1, count * 3)))
          next_block = next_block + count
        end
      end
      if units > 0 then
        if index == head then head_total = (head_total - units) % 4294967296 end
        if index == first then first_total = (first_total - units) % 4294967296 end
        if index < tail - 1 then before_last = (before_last - units) % 4294967296 end
        last_total = (last_total - units) % 4294967296
        used = used - units
        -- A refund is no charge: the stored time still belongs to the window of the last charge.
        if not is_short then
          header = pack(long_header, known, state_window, old_life, old_end, start, head, tail,
            places, until_ms, before_last, stored_last_time, last_total,
            tail == head + 1 and stored_last_time or head_time, head_total)
            .. newest_block .. oldest_block
        end
        written = string.sub(header, 1, at_newest) .. string.sub(state, at_newest + 1, at_newest + 6)
          .. string.sub(header, at_newest + 7)
        if in_flight and used == 0 and last_time <= now and not block_header then
          -- As in release.lua.
          call('DEL', key)
          written = nil
        end
        if is_short then
          text = header
        elseif math.floor(first / 8) == newest then
          text, from = header, 78
        elseif math.floor(first / 8) == number then
          text, from = block, 0
        end
      end
    end
  elseif commits then
    if (admitted or trial) and free >= needed then
      units = max_cost > cost and units_of(free, cost, max_cost, flags) or cost
    end
    if units > 0 then
      -- Drop the records that no longer count.
      local dropped = first - head
      head, start = first, base
      if tail > head and window > state_window then
        -- The records that count keep their life.
        old_end, old_life = tail, state_window
      elseif window <= old_life then
        old_end, old_life = 0, 0
      end
      state_window, life, known = window, window, seen
      short_life = old_life
      -- A bucket that is open stays open until it ends.
      local begins_life, stamp, total = old_end == tail, seen, base
      if tail > head then total = last_total end
      if tail > head and last_time > seen then
        stamp = last_time
      elseif buckets or tail - head >= 10000 and window > 10000 then
        -- A sliding log of 10,000 records is one of refunded or forced units: see sliding_log.lua.
        stamp = bucket_end(window, buckets or 10000, seen)
      end
      -- A forced charge stops counting where the running total would wrap.
      local spend, room = units, 4294967295 - (total - base) % 4294967296
      if spend > room then spend = room end
      total = (total + spend) % 4294967296
      local slot, flush, flushed, ring = tail % 8, nil, nil, nil
      -- Units with the same time and life are one record. A log of 1048576 records gets no more:
      -- further units join the newest record, and come back late and never early.
      local joins =
        tail > head and (stamp == last_time and not begins_life or tail - head >= 1048576)
      -- The records of a short log that stay, or the blocks of one that has become long.
      local kept, moved = '', nil
      if tail == head then
        is_short = true
      elseif is_short and old_end == 0 and (joins or tail - head < 41) then
        kept = string.sub(header, dropped * 10 + 25, joins and at_newest or at_newest + 10)
      elseif is_short then
        local first_of_block, layout = 0, '<' .. string.rep('I6I4', tail - head)
        local numbers = { parse(layout, header, dropped * 10 + 25) }
        for i = 2, (tail - head) * 2, 2 do
          if (head + i / 2 - 1) % 8 == 0 then
            first_of_block = numbers[i]
          else
            numbers[i] = (numbers[i] - first_of_block) % 4294967296
          end
        end
        local blocks = string.rep('\0', head % 8 * 10)
          .. pack(layout, unpack(numbers, 1, (tail - head) * 2))
        local newest = (math.floor((tail - 1) / 8) - math.floor(head / 8)) * 80
        is_short, moved, header = false, string.sub(blocks, 1, newest),
          string.rep('\0', 78) .. string.sub(blocks, newest + 1)
        text, from = header, 78
        if newest > 0 then text, from = string.sub(moved, 1, 80), 0 end
      elseif slot == 0 and not joins and tail - head <= 8 and old_end <= head then
        -- A log that has shrunk to one block is short again.
        local first_of_block = parse('<I4', header, 85)
        for i = head % 8, 7 do
          local bits, total_of = parse('<I6I4', header, i * 10 + 79)
          if i > 0 then total_of = (total_of + first_of_block) % 4294967296 end
          kept = kept .. pack('<I6I4', bits, total_of)
        end
        is_short = true
      end
      -- The copy of the oldest block is written when it is another one.
      local oldest_block, newest_block = from == 0 and text or nil, ''
      if joins then
        slot = (tail - 1) % 8
        if begins_life then old_end = tail - 1 end
        if not is_short then newest_block = string.sub(header, 79, 78 + slot * 10) end
      else
        before_last = tail > head and last_total or base
        if tail == head then
          -- Nothing is left: begin a block. A log that is stored anew has other numbers than before.
          local seed = seen % 17592186044416 * 8
          head, slot = math.floor((tail + 7) / 8) * 8, 0
          if head < seed then head = seed end
          tail = head
        elseif slot == 0 and not is_short then
          -- The newest block is full: it joins the ring.
          flush, flushed = string.sub(header, 79, 158), (tail - 8) / 8
          if flushed == math.floor(head / 8) then oldest_block, text, from = flush, flush, 0 end
        elseif not is_short then
          newest_block = string.sub(header, 79, 78 + slot * 10)
        end
        tail = tail + 1
      end
      mark1 = tail - 1
      local oldest = (head - head % 8) / 8
      -- The number of blocks in the ring.
      local count = (mark1 - mark1 % 8) / 8 - oldest
      if moved and count > 0 or flush and (count > places or places > 8 and count < places / 4) then
        -- The ring grows by small steps, to hold little in reserve, and shrinks after a burst.
        local all = moved or ''
        if not moved and count > 1 then
          local place, over = oldest % places, oldest % places + count - 1 - places
          local at = ring_at + place * 80
          if over <= 0 then
            all = call('GETRANGE', key, at, at + (count - 1) * 80 - 1)
          else
            all = call('GETRANGE', key, at, ring_at + places * 80 - 1)
              .. call('GETRANGE', key, ring_at, ring_at + over * 80 - 1)
          end
        end
        places = count > places and count + math.floor(count / 8) or 2 * count
        if places < count + 1 then places = count + 1 end
        ring = all .. (flush or '') .. string.rep('\0', (places - count) * 80)
        local behind = (places - oldest % places) * 80
        ring = string.sub(ring, behind + 1) .. string.sub(ring, 1, behind)
      end
      local relative = total
      if slot > 0 and not is_short then
        relative = (total - parse('<I4', header, 85)) % 4294967296
      end
      last_time, last_total = stamp, total
      if tail == head + 1 then first_time, first_total = stamp, total end
      first, used = head, (last_total - base) % 4294967296
      local ends = stamp + window
      local spare, renew = until_ms * 1000 - ends, false
      if not is_short and (spare <= 0 or spare > window / 8 + 1002000) then
        until_ms, renew = math.floor((ends + window / 8) / 1000) + 1002, true
      end
      local bits = stamp % 281474976710656
      if is_short then
        header = pack('<I7I6BI6I4c0I6I4', known, state_window, tail - head, head, start, kept,
          bits, relative)
      else
        header = pack(long_header, known, state_window, old_life, old_end, start, head, tail, places,
          until_ms, before_last, last_time, last_total, first_time, first_total)
          .. newest_block .. pack('<I6I4', bits, relative)
      end
      if is_short then
        local step = (window - window % 8) / 8 + 1000000
        written = header
        -- If a multiple of the step is behind the newest end and not behind the one before, the key has to
        -- live until the next multiple.
        if #header > stored_bytes or ends % step < stamp - stored_last_time then
          expires = ends - ends % step + step
        end
      elseif places == 0 then
        written, expires = header, until_ms * 1000
      elseif ring then
        oldest_block = oldest_block or from == 158 and string.sub(text, 159, 238) or string.rep('\0', 80)
        written = header .. string.rep('\0', 70 - slot * 10) .. oldest_block .. ring
        -- The searches below are of the new ring.
        expires, ring_at = until_ms * 1000, ring
      else
        -- The header comes last: until it is written, nothing is charged.
        if renew then expires, is_prefix = until_ms * 1000, true end
        if flush then call('SETRANGE', key, ring_at + flushed % places * 80, flush) end
        written = oldest_block and header .. string.rep('\0', 70 - slot * 10) .. oldest_block or header
      end
      if is_short or head - head % 8 >= tail - 8 then text, from = header, is_short and 24 or 78 end
    end
  end

  if commits then
    free = limit > used and limit - used or 0
    if used > 0 then
      -- The waits until one more unit, all units, and the cost are free. Often the oldest record
      -- suffices, or it takes the newest.
      local oldest, all_but_newest = (first_total - base) % 4294967296,
        (before_last - base) % 4294967296
      local wanted = free + 1
      for want = 1, units > 0 and 2 or 3 do
        if wanted > free and wanted <= limit then
          local must_leave, leaves = used + wanted - limit, last_time + life
          if oldest >= must_leave then
            leaves = first_time + (first < old_end and short_life or life)
          elseif all_but_newest >= must_leave then
            local _
            _, _, leaves =
              find(key, header, text, from, first, base, window, nil, must_leave, nil, ring_at)
          end
          local wait = leaves - now
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
        wanted = want == 1 and limit or cost
      end
    end
  end
end
