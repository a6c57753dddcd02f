-- Ends the decision on a charge, and replies. If block.lua has found the header of a block, the decision begins
-- again, and the algorithm works behind that header.
--
-- KEYS     none
-- ARGV[2]  none
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
if not met_block then
  if foreign then return nil, charge end
  if answering then
    reply[charge] = pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, mark2, mark3)
  end
  return admitted and (is_followed or required == 0 or units > 0 or not answering and free >= required), nil, last
end
