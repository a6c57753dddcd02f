-- Sliding counter: two periods, the older one weighted by its overlap with the trailing window. The estimate is
-- ceil(previous * (end - now) / window) + current. The rest is in periods.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    see periods.lua
-- RETURNS  the standing; mark: see periods.lua
-- TTL      see periods.lua
fade = 1
