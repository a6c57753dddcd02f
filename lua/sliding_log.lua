-- Sliding log: remembers every charge with its time. Above a limit of 10,000, the times are rounded up to
-- the next of 10,000 edges a window, if those are more than a microsecond apart. So are the times of a log
-- that has 10,000 records. The rest is in ring.lua.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (1 if the units are those in flight), cost, max_cost
-- STATE    see ring.lua
-- RETURNS  the standing; mark: see ring.lua
-- TTL      see ring.lua
in_ring, in_flight = true, parameter == 1
if limit > 10000 and window > 10000 then buckets = 10000 end
