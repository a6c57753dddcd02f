  end
  if foreign then
    -- A value that this script did not write: it is left as it is.
    if not batch then
      return redis.error_reply('TOLLGATE ' .. foreign .. ' does not hold a state of this limiter')
    end
    for i = before_check + 1, before_check + count do
      reply[i + 1] = pack('<dddddddd', -1, 0, 0, 0, 0, 0, 0, 0)
    end
    foreign, again, stop = nil, false, step
  elseif looking then
    if step <= count and flags % 2 == 0 and cost > free then admitted = false end
  elseif total == 1 then
    return pack('<ddddddddd', now, units, free, next_after, reset_after, retry_after, mark1, mark2,
      mark3)
  else
    reply[place + 1] = pack('<dddddddd', units, free, next_after, reset_after, retry_after, mark1,
      mark2, mark3)
  end
end
