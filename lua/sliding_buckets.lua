  -- Sliding buckets: a log whose times are rounded up to the end of the bucket that holds them.
  -- Edges are the multiples of window / n, rounded up when one is named, so they do not drift.
  -- The rest is in ring.lua.
  if algorithm == 2 and units > 0 then
    -- As ring.lua has seen it in the look before.
    if saved then seen = saved[line][18] end
    local bucket, rest = mul_div(seen, parameter, 0, window)
    stamp, rest = mul_div(bucket + 1, window, 0, parameter)
    if rest > 0 then stamp = stamp + 1 end
  end
