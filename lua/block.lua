-- Block: no unit of a blocked key is free, whatever its algorithm says. The twin of
-- src/algorithm/block.rs.
--
-- An ordinary charge does nothing here. A blocked key begins with a header that no algorithm takes for
-- its state. The charge that meets it is looked at again, and the algorithm then reads and writes its
-- state behind the header. Each further name or text in the script costs every call time, so the names
-- of variables here are mostly those of other files.
--
-- KEYS     the key of the charge
-- ARGV[2]  of a block its duration, in place of the most units to take
-- STATE    28 bytes before the state of the algorithm: 'blocked', the end of the block, its life, and
--          when the state expires. The header stays when the block has ended, until the key is charged
-- RETURNS  the standing of a blocked key
-- TTL      the end of the block, or that of the state if it is later
local block = false
if foreign or blocks or operation == 'k' then
  if not blocks then
    -- From here on a state is written behind the header of its key, and lives as long as that.
    local plain = store
    blocks = {}
    store = function(key, state, time)
      local header = blocks[key]
      if header then
        header = sub(header, 1, 21) .. pack('<I7', time)
        blocks[key], state = header, header .. state
        local end_ = parse('<I7', header, 8)
        if time < end_ then time = end_ end
      end
      plain(key, state, time)
    end
  end

  local header = foreign and not blocks[key] and read('GETRANGE', key, 0, 27)
  if header and #header == 28 then
    local text, end_, life, expiry = parse('<c7I7I7I7', header)
    if text == 'blocked' and life <= 34560000000000 then
      block = true
      if end_ > now + life then
        -- The clock has been set back: the rest of the block is at most its life.
        header = pack('<c7I7I7I7', text, now + life, life, expiry)
        call('SETRANGE', key, '0', header)
      end
      blocks[key] = header
    end
  end

  header = blocks[key]
  if not foreign and answering then
    if header and (operation == 'u' or not block_end and units > 0 and not refunding) then
      -- A charge after the block, or the block is lifted: the state takes its place again.
      state = call('GETRANGE', key, 28, -1)
      blocks[key], block_end = nil, nil
      if state == '' then call('DEL', key) else store(key, state, parse('<I7', header, 22)) end
    elseif operation == 'k' and (not block_end or block_end < now + max_cost) then
      local expiry = now + call('PTTL', key) * 1000
      if header then expiry = parse('<I7', header, 22) end
      state = call('GETRANGE', key, offset, -1)
      block_end = now + max_cost
      blocks[key] = pack('<c7I7I7I7', 'blocked', block_end, max_cost, expiry)
      store(key, state, expiry)
    end
  end

  if block_end and not foreign then
    local rest = block_end - now
    if free > 0 or next_after < rest then next_after = rest end
    if cost <= free or retry_after < rest then retry_after = rest end
    if reset_after < rest then reset_after = rest end
    free = 0
  end
end
