-- Writes the reply of a charge, and ends its turn. If block.lua has found the header of a block, the
-- turn begins again, and the algorithm works behind that header.
--
-- KEYS     none
-- ARGV[2]  none
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
if not met_block then
  if foreign then return nil, charge end
  if not answering then
    same_keys = { charge, same_keys }
  elseif reply then
    reply[charge + 1] = pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1,
      mark2, mark3)
  else
    reply = pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, mark2,
      mark3)
  end
  return admitted, last, same_keys
end
