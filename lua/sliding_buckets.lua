-- Sliding buckets: a log whose times are rounded up to the end of the bucket that holds them. The rest
-- is in ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (the number of buckets n), cost, max_cost
-- STATE    see ring.lua
-- RETURNS  the standing; mark: see ring.lua
-- TTL      see ring.lua
in_ring, buckets = true, parameter

-- Returns the end of the bucket that holds `time`. Edges are the multiples of window / n. Each is rounded
-- up by itself, so they do not drift.
function bucket_end(window, n, time)
  local bucket = mul_div(time, n, 0, window)
  local edge, rest = mul_div(bucket + 1, window, 0, n)
  return rest > 0 and edge + 1 or edge
end
