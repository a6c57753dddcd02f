-- Sliding buckets: a log whose times are rounded up to the end of the bucket that holds them. The rest
-- is in ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (the number of buckets n), cost, max_cost
-- STATE    see ring.lua
-- RETURNS  the standing; mark: see ring.lua
-- TTL      see ring.lua
in_ring, buckets = true, parameter
