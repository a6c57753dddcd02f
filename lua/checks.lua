-- Checks: looks at all charges of a check, then commits all, one check after the other, and returns the replies.
--
-- KEYS     none
-- ARGV[2]  the flags of each charge
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local first, failure = 1, nil
while first <= #KEYS do
  local last = first
  -- The second byte of a charge has its flags. See charge.lua.
  local size = operation == 'g' and 82 or 42
  while string.byte(ARGV[2], last * size - size + 2) < 16 do last = last + 1 end
  local admitted, foreign = true, nil
  -- A charge that is alone needs no look: it is spent if it passes.
  for charge = first, first < last and last or 0 do
    local passes = decide(operation, now, charge)
    if passes == nil then foreign = foreign or charge end
    admitted = admitted and passes
  end
  for charge = first, foreign and 0 or last do
    if not decide(operation, now, charge, true, admitted) then foreign = charge end
  end
  -- A value that this script did not write is left as it is, and so is the rest of the check.
  if foreign and operation == 'b' then
    for charge = first, last do reply[charge + 1] = pack('<dddddddd', -1, 0, 0, 0, 0, 0, 0, 0) end
  elseif foreign then
    failure = redis.error_reply('PLIMSOLL ' .. KEYS[foreign] .. ' does not hold a state of this limiter')
    -- A released unit is a check of its own, and those behind it are released.
    if operation ~= 'g' or first < last then return failure end
  end
  first = last + 1
end
if failure then return failure end
return KEYS[2] and table.concat(reply) or reply
