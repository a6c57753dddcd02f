  end
  if not looking then
    reply = reply .. pack('<dddddddd', units, s.free, next_after, reset_after, retry_after,
      s.mark1, s.mark2, s.mark3)
  elseif step <= count and s.flags % 2 == 0 and s.cost > s.free then
    admitted = false
  end
end
return reply
