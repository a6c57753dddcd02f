-- Sliding buckets: a log whose times are rounded up to the end of the bucket that holds them. The rest
-- is in ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (the number of buckets n), cost, max_cost
-- STATE    see ring.lua
-- RETURNS  the standing; mark: see ring.lua
-- TTL      see ring.lua
in_ring = true

-- Edges are the multiples of window / n. Each is rounded up by itself, so they do not drift.
if answering then
  function bucket_end(time)
    local bucket = mul_div(time, parameter, 0, window)
    local edge, rest = mul_div(bucket + 1, window, 0, parameter)
    return rest > 0 and edge + 1 or edge
  end
end
