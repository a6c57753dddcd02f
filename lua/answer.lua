-- Writes the reply of a charge, and decides which charge comes next.
--
-- KEYS     none
-- ARGV[2]  the flags of the charges behind a foreign one
-- STATE    none
-- RETURNS  see prelude.lua
-- TTL      nothing is written
local check_over = false
if block then
  -- The charge is looked at again, behind the header of the block.
  charge = charge - 1
elseif foreign then
  -- A value that this script did not write is left as it is, and so is the rest of the check.
  if not batch then
    return redis.error_reply('TOLLGATE ' .. key .. ' does not hold a state of this limiter')
  end
  while string.byte(charges, charge * width - width + 2) < 8 do charge = charge + 1 end
  for i = first, charge do reply[i + 1] = pack('<dddddddd', -1, 0, 0, 0, 0, 0, 0, 0) end
  last, check_over = charge, true
else
  if not answering then
    states[charge - first + 1] = state
  elseif total == 1 then
    return pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, mark2,
      mark3)
  else
    reply[charge + 1] = pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1,
      mark2, mark3)
  end
  if committing then
    check_over = charge == unanswered
  else
    if units == 0 and cost > free and not shadow then admitted = false end
    if is_last then
      last, unanswered = charge, answering and charge - 1 or charge
      if unanswered < first then check_over = true else charge, committing = first - 1, true end
    end
  end
end
if check_over then
  if last == total then return table.concat(reply) end
  charge, first, committing, admitted = last, last + 1, false, true
end
