-- Checks: looks at all charges of a check, then commits all, one check after the other, and returns the replies.
--
-- KEYS     none
-- ARGV[2]  the flags of each charge
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local first, failure = 1, nil
while first <= #KEYS do
  local last, flags = first - 1, 0
  repeat
    last = last + 1
    -- The second byte of a charge. See charge.lua.
    flags = string.byte(ARGV[2], operation == 'g' and last * 82 - 80 or last * 42 - 40)
  until flags >= 16
  -- The last charge needs no look if no other one has its key: it is spent if it passes, too.
  local admitted, foreign, others = true, nil, flags % 4 < 2 and last - 1 or last
  for charge = first, others do
    local passes = decide(operation, now, charge)
    if passes == nil then foreign = foreign or charge end
    admitted = admitted and passes
  end
  if others < last and not foreign then
    local final
    admitted, final = decide(operation, now, last, true, admitted)
    if admitted == nil then foreign = last end
    -- Released units of one key are released together.
    last = final or last
  end
  for charge = first, foreign and 0 or others do decide(operation, now, charge, true, admitted) end
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
return table.concat(reply)
