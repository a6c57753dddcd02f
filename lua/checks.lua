-- Checks: has the charges of each check decided, one check after the other, and returns the replies.
--
-- KEYS     none
-- ARGV[2]  the flags of each charge
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local first, failure = 1, nil
while first <= #keys do
  repeated = nil
  local admitted, foreign, last = decide(operation, now, first, true)
  -- A value that this script did not write is left as it is, and so is the rest of the check.
  if foreign then
    last = first
    while string.byte(lines, operation == 'g' and last * 82 - 80 or last * 42 - 40) < 16 do last = last + 1 end
    if operation == 'b' then
      for charge = first, last do reply[charge] = pack('<ddddddddd', now, -1, 0, 0, 0, 0, 0, 0, 0) end
    else
      failure = redis.error_reply('PLIMSOLL ' .. KEYS[foreign] .. ' does not hold a state of this limiter')
      -- A released unit is a check of its own, and those behind it are released.
      if operation ~= 'g' or first < last then return failure end
    end
  elseif repeated then
    for charge = repeated, last do decide(operation, now, charge, admitted, true) end
  end
  -- Released units of one key are released together.
  first = last + 1
end
return failure or keys[2] and table.concat(reply) or reply[1]
