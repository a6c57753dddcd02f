  end
  if foreign then
    -- A value that this script did not write: it is left as it is.
    return redis.error_reply('TOLLGATE ' .. foreign .. ' does not hold a state of this limiter')
  end
  if looking then
    if step <= count and flags % 2 == 0 and cost > free then admitted = false end
  elseif count == 1 then
    return pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, mark2,
      mark3)
  else
    reply = reply
      .. pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1, mark2, mark3)
  end
end
return reply
