-- Fixed window: one counter that starts again at each multiple of the window. The rest is in periods.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    see periods.lua
-- RETURNS  the standing; mark: see periods.lua
-- TTL      see periods.lua
fade = 0
