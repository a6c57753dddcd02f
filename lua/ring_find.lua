-- The functions of logs: the search, the ends of buckets, and whole times from the stored parts.
--
-- KEYS     the key of the charge
-- ARGV     none
-- STATE    reads blocks of the ring: see ring.lua
-- RETURNS  see `find`
-- TTL      nothing is written
if in_ring and not find then
  -- Returns the time nearest to `known` of which `bits` are the last 48.
  function nearest(bits, known)
    return known - 140737488355328 + (bits - known + 140737488355328) % 281474976710656
  end

  -- Returns the end of the bucket that holds `time`. Edges are the multiples of window / n. Each is
  -- rounded up by itself, so they do not drift.
  function bucket_end(window, n, time)
    local bucket = mul_div(time, n, 0, window)
    return div_up(bucket + 1, window, 0, n)
  end

  -- Returns the first record from `index` on that leaves after `seen` under this window, or up to
  -- which `wanted` units were charged, or that has this `number`: its index and time, when it leaves,
  -- its total, the total before it, and its block, which is in a text behind a position. There is such
  -- a record. The block of `index` is in `text` behind `from`, and `before` is the total before that
  -- record. `ring` is the position of the ring in the value, or the text of a ring that is not stored yet.
  function find(key, header, text, from, index, before, window, seen, wanted, number, ring)
    local parse = struct.unpack
    -- A short log is one block, whose totals are not relative.
    local last_slot, first_total = 40, 0
    local known, life, short_life, old_end, _, block, tail, places
    if #header % 10 == 4 then
      known, life, tail, block = parse('<I7I6BI6', header)
      short_life, old_end, tail = life, 0, block + tail
    else
      known, life, short_life, old_end, _, _, tail, places = parse('<I7I6I6I6I4I6I6I4', header)
      last_slot, block, first_total = 7, index - index % 8, parse('<I4', text, from + 7)
    end
    if life > window then life = window end
    if short_life > window then short_life = window end
    local base = before
    local low, high = index, tail - 1
    -- Mostly the record is near: in this block, or in the next.
    local near, far = block + 7, block + 15
    while true do
      local middle = (low + high - (low + high) % 2) / 2
      if seen and near < high then middle, near, far = near, far, tail end
      local slot = middle - block
      if slot < 0 or slot > last_slot then
        slot = middle % 8
        block = middle - slot
        if block + 8 >= tail then
          text, from = header, 78
        else
          local place = block / 8 % places * 80
          if type(ring) == 'string' then
            text = string.sub(ring, place + 1, place + 80)
          else
            place = ring + place
            text = redis.call('GETRANGE', key, string.format('%d', place),
              string.format('%d', place + 79))
          end
          -- Another program has cut the log short.
          if #text < 80 then text = text .. string.rep('\0', 80 - #text) end
          from = 0
        end
        first_total = parse('<I4', text, from + 7)
      end
      local bits, total = parse('<I6I4', text, from + slot * 10 + 1)
      if slot > 0 then total = (total + first_total) % 4294967296 end
      local time = nearest(bits, known)
      if time < 0 then time = 0 end
      local leaves = time + (middle < old_end and short_life or life)
      if middle < high and not (seen and leaves > seen
        or wanted and (total - base) % 4294967296 >= wanted or number and middle >= number) then
        low, before = middle + 1, total
      elseif low < middle then
        high = middle
      else
        return middle, time, leaves, total, before, text, from
      end
    end
  end
end
