-- Block: no unit of a blocked key is free, whatever its algorithm says. The twin of
-- src/algorithm/block.rs.
--
-- An ordinary charge does nothing here. The value of a blocked key begins with a header, which no
-- algorithm accepts as its state. The decision on a charge that meets the header begins again. The algorithm
-- then reads and writes its state behind the header.
--
-- KEYS     the key of the charge
-- ARGV[2]  of a block its duration, in place of the most units to take
-- STATE    28 bytes before the state of the algorithm: 'blocked', the end of the block, its duration, and
--          when the state expires. The header stays when the block has ended, until the key is charged
-- RETURNS  the standing of a blocked key. A block has 1 unit if the key had spent units or was blocked, and
--          the lift of a block if there was one
-- TTL      the end of the block, or the end of the state if it is later
local met_block = false
if foreign and not block_header then
  local header = #state > 0 and string.sub(state, 1, 28) or ''
  if #header == 28 then
    local text, until_, duration, expiry = parse('<c7I7I7I7', header)
    if text == 'blocked' and duration <= 34560000000000 then
      if until_ > now + duration then
        -- The clock has been set back: the rest of the block is at most its duration.
        header = pack('<c7I7I7I7', text, now + duration, duration, expiry)
        call('SETRANGE', key, '0', header)
      end
      block_header, met_block = header, true
    end
  end
elseif (block_header or operation == 'k') and not foreign then
  local lifted = block_header
    and (operation == 'u' or not block_end and units > 0 and operation ~= 'g')
  local blocked = operation == 'k' and (not block_end or block_end < now + max_cost)
  if block_end and operation == 'u' or (block_end or reset_after > 0) and operation == 'k' then
    units = 1
  end
  if answering and (lifted or blocked) then
    -- The whole state is written: behind another header, or in its own place again.
    if not expires or is_prefix then
      is_prefix, expires = false, expires or block_header and parse('<I7', block_header, 22)
        or now + call('PTTL', key) * 1000
      state = call('GETRANGE', key, offset, -1)
      written = written and written .. string.sub(state, #written + 1) or state
    end
    block_header, block_end = nil, nil
    if blocked then
      block_end = now + max_cost
      block_header = pack('<c7I7I7I7', 'blocked', block_end, max_cost, expires)
    elseif written == '' then
      call('DEL', key)
      written = nil
    end
  end
  if block_end then
    local rest = block_end - now
    if free > 0 or next_after < rest then next_after = rest end
    if cost <= free or retry_after < rest then retry_after = rest end
    if reset_after < rest then reset_after = rest end
    free = 0
  end
end
