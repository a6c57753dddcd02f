-- Checks: begins the turns of each check, one check after the other, and returns the replies.
--
-- KEYS     none
-- ARGV[2]  the flags of the charges behind a foreign one
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local first, total, failure = 1, #KEYS, nil
repeat
  local admitted, last, same_keys = turn(operation, now, first, true)
  -- A value that this script did not write is left as it is, and so is the rest of the check.
  if admitted == nil and operation ~= 'b' then
    failure = redis.error_reply('PLIMSOLL ' .. KEYS[last] .. ' does not hold a state of this limiter')
    -- A released unit is a check of its own, and those behind it are released.
    if operation ~= 'g' or string.byte(ARGV[2], first * 82 - 80) < 16 then return failure end
  elseif admitted == nil then
    -- The second of the 42 bytes of a charge has its flags.
    while string.byte(ARGV[2], last * 42 - 40) < 16 do last = last + 1 end
    for charge = first, last do
      reply[charge + 1] = pack('<dddddddd', -1, 0, 0, 0, 0, 0, 0, 0)
    end
  end
  while same_keys do
    turn(operation, now, same_keys[1], admitted, true)
    same_keys = same_keys[2]
  end
  first = last + 1
until first > total
if failure then return failure end
return total == 1 and reply or table.concat(reply)
