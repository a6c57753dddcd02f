-- The search of ring.lua, as a function of its own: it needs several searches.
--
-- KEYS     the key of the charge
-- ARGV     none
-- STATE    reads blocks of the ring: see ring.lua
-- RETURNS  see `find`
-- TTL      nothing is written
if in_ring and not find then
  -- Returns the first record from `index` on that is later than `after`, or up to which `wanted` units
  -- were charged: its index, time and total, the total before it, and its block, which is in a text
  -- behind a position. There is such a record. The block of `index` is in `text` behind `from`, and
  -- `before` is the total before that record.
  function find(key, header, text, from, index, before, after, wanted)
    local known, _, shift, _, _, tail, places = parse('<I7I6I7I4I6I6I4', header)
    local origin, base = (known + shift) % 281474976710656, before
    local block, first_total = index - index % 8, parse('<I4', text, from + 7)
    local low, high = index, tail - 1
    -- What has left mostly ends near: in this block, or in the next.
    local near, far = block + 7, block + 15
    while true do
      local middle = (low + high - (low + high) % 2) / 2
      if after and near < high then middle, near, far = near, far, tail end
      local slot = middle - block
      if slot < 0 or slot > 7 then
        slot = middle % 8
        block = middle - slot
        if block + 8 >= tail then
          text, from = header, 73
        else
          local place = 233 + block / 8 % places * 80
          text = call('GETRANGE', key, string.format('%d', place), string.format('%d', place + 79))
          from = 0
        end
        first_total = parse('<I4', text, from + 7)
      end
      local bits, total = parse('<I6I4', text, from + slot * 10 + 1)
      if slot > 0 then total = (total + first_total) % 4294967296 end
      local time = (bits - origin) % 281474976710656
      time = known + (time < 140737488355328 and time or time - 281474976710656)
      if time < 0 then time = 0 end
      if not (after and time > after or wanted and (total - base) % 4294967296 >= wanted) then
        low, before = middle + 1, total
      elseif low < middle then
        high = middle
      else
        return middle, time, total, before, text, from
      end
    end
  end
end
