  -- Sliding buckets: a log whose times are rounded up to the end of the bucket that holds them.
  -- Edges are the multiples of window / n, rounded up when one is named, so they do not drift.
  -- The rest is in ring.lua.
  if units > 0 and s.algorithm == 2 then
    local bucket = mul_div(s.seen, s.parameter, 0, s.window)
    s.stamp = mul_div_ceil(bucket + 1, s.window, s.parameter)
  end
