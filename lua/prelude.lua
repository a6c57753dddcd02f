-- plimsoll: the limiter's one script. This file has what every call needs: its arguments, the time,
-- exact arithmetic, and the variables that the charges share.
--
-- src/redis/script.rs joins the files. Each is a chunk that parses by itself:
--
--   prelude.lua
--   self_test.lua              answers 't', the self-test of the commands
--   decide = function(..)      decides one charge. It begins again behind a block
--     charge.lua               reads the charge and its state
--     if algorithm == .. then  one such branch for each algorithm, with the file named after it
--     periods.lua              what fixed_window.lua and sliding_counter.lua share
--     ring_find.lua            the functions of the logs
--     release.lua              releases units in flight, in most cases
--     ring.lua                 what sliding_log.lua and sliding_buckets.lua share
--     block.lua                blocks keys, and refuses blocked ones
--     reset.lua, write.lua     delete or write the state
--     answer.lua               replies
--   end
--   checks.lua                 has the charges of each check decided, and returns the replies
--
-- KEYS     one key for each charge
-- ARGV[1]  the operation: 'a' acquire, 'p' peek, 'f' force, 'g' refund, 'r' reset, 't' self-test, 'b'
--          acquire for several checks, one after the other, 'k' block, 'u' unblock
-- ARGV[2]  the charges, packed: algorithm, flags (1 shadow or trial, 2 an earlier charge of the check
--          has the same key, 4 a lease: it leaves half of what is free beyond its cost, 8 trial, 16 last
--          charge of its check), limit, window, parameter, cost and the most units to take, for a block its
--          duration; for a refund also the mark of the spent charge, and its limit and window. The
--          live charges of a check come before the others
-- ARGV[3]  the time in microseconds; only tests pass it
-- STATE    see each algorithm
-- RETURNS  nine packed doubles for each charge: the time, units (of 'r', 'k' and 'u' see reset.lua and
--          block.lua), remaining, next_after, reset_after,
--          retry_after (microseconds) and the three numbers of its mark. With 'b', a check that
--          meets a foreign value has -1 for the units of all its charges and spends nothing; the
--          other checks are decided
-- TTL      each key expires when its state stops mattering (see each algorithm); with a time from a
--          test, one day after the last write
--
-- All numbers are integers below 2^53.
local operation, now = ARGV[1], ARGV[3]
-- Looked up once for all charges: a global or a field costs as much as five other steps.
local keys, lines, test_time = KEYS, ARGV[2], ARGV[3]
local call, pack, parse = redis.call, struct.pack, struct.unpack
-- In a batch, a key of another type fails its own check only.
local read = operation == 'b' and redis.pcall or call
if now then
  now = tonumber(now)
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Returns quotient and remainder of (a * b + d) / c. The product may exceed 2^53; then either c and d
-- are below 2^45, or c is below 2^52.
local function mul_div(a, b, d, c)
  local product = a * b + d
  local rest = product % c
  if product < 9007199254740992 then return (product - rest) / c, rest end
  -- Take out the whole multiples of c, so that a is below c.
  local quotient = (a - a % c) / c * b
  a = a % c
  product = a * b + d
  rest = product % c
  if product < 9007199254740992 then return quotient + (product - rest) / c, rest end
  -- Long division, a few bits of b at a time, so that no step exceeds 2^53.
  local base, bit, more = c < 35184372088832 and 128 or 2, 1, 0
  rest = 0
  while bit * base <= b do bit = bit * base end
  while bit >= 1 do
    local digit = (b - b % bit) / bit
    b = b - digit * bit
    product = rest * base
    rest = product % c
    more = more * base + (product - rest) / c
    product = rest + a * digit
    rest = product % c
    more = more + (product - rest) / c
    bit = bit / base
  end
  local sum = rest + d
  rest = sum % c
  return quotient + more + (sum - rest) / c, rest
end

-- Returns ceil((a * b - d) / c), where d is below b, and c below 2^52.
local function div_up(a, b, d, c)
  local product = a * b
  if product < 4503599627370496 then
    product = product - d
    return (product + -product % c) / c
  end
  -- The last b is added apart: a product beyond 2^53 would be inexact.
  local quotient, rest = mul_div(a - 1, b, b - d, c)
  return rest > 0 and quotient + 1 or quotient
end

-- Returns the units that a charge takes beyond its cost if so many are free.
local function units_of(free, cost, max_cost, flags)
  return math.min(max_cost, flags % 8 >= 4 and cost + math.floor((free - cost) / 2) or free)
end

-- The reply of each charge, and the first charge of a check with the key of an earlier one.
local reply, repeated = {}, nil
-- The functions of ring_find.lua, from the first log on.
local nearest, bucket_end, find

-- Decides the charges of a check from this one to its last. The charges are counted from 1 over all checks of the call.
-- `admitted` is true if the charges before this one pass.
--
-- A charge first finds out how many units are free. It then has the charges behind it decided, which know whether
-- those before them pass, and learns whether all pass. Last, it is committed: spent if it passes and the check is
-- admitted. So no charge is written before all have been looked at, and each is read once. A charge with the key of an
-- earlier one is only looked at, until it is decided `again`.
--
-- Returns whether the check is admitted; the number of a charge whose key has a foreign value, in which case nothing
-- is written; and the number of the last charge.
local decide
