  -- Sliding log: every charge with its time. The rest is in ring.lua.
  if units > 0 and s.algorithm == 1 then
    s.stamp = s.seen
  end
