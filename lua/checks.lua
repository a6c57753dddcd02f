-- Checks: has the charges of each check decided, one check after the other, and returns the replies.
--
-- KEYS     none
-- ARGV[2]  the flags of each charge
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local first, failure = 1, nil
while first <= #keys do
  local last, flags, repeated = first - 1, 16, nil
  repeat
    last = last + 1
    -- The second byte of a charge. See charge.lua.
    if keys[2] then flags = string.byte(lines, operation == 'g' and last * 82 - 80 or last * 42 - 40) end
    if flags % 4 >= 2 then repeated = repeated or last end
  until flags >= 16
  local admitted, foreign, final = decide(operation, now, first, true, last)
  -- A value that this script did not write is left as it is, and so is the rest of the check.
  if foreign and operation == 'b' then
    for charge = first, last do reply[charge] = pack('<ddddddddd', now, -1, 0, 0, 0, 0, 0, 0, 0) end
  elseif foreign then
    failure = redis.error_reply('PLIMSOLL ' .. KEYS[foreign] .. ' does not hold a state of this limiter')
    -- A released unit is a check of its own, and those behind it are released.
    if operation ~= 'g' or first < last then return failure end
  else
    for charge = repeated or last + 1, last do decide(operation, now, charge, admitted, charge, true) end
  end
  -- Released units of one key are released together.
  first = (final or last) + 1
end
return failure or keys[2] and table.concat(reply) or reply[1]
