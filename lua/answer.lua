-- Ends the decision on a charge: replies if it is answered, and says whether it passes otherwise. If block.lua has
-- found the header of a block, the decision begins again, and the algorithm works behind that header.
--
-- KEYS     none
-- ARGV[2]  none
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
if not met_block then
  if foreign then return nil end
  if not answering then return free >= required end
  reply[charge + 1] = pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1, mark2, mark3)
  return admitted and (required == 0 or units > 0)
end
