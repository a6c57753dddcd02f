-- Sliding log: remembers every charge with its time. The rest is in ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    see ring.lua
-- RETURNS  the standing; mark: see ring.lua
-- TTL      see ring.lua
in_ring = true
