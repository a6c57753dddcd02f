-- tollgate: the limiter's one script. This file has what every call needs: its arguments, the time,
-- exact arithmetic, and the loop's variables.
--
-- src/store/redis/script.rs joins the files. Each is a chunk that parses by itself:
--
--   prelude.lua
--   trial.lua                  answers 't', the trial of the commands
--   carried.lua                what fixed_window.lua and sliding_counter.lua share
--   while true do              one turn looks at a charge, answers it, or both
--     next_charge.lua          reads the charge
--     if algorithm == .. then  one such branch for each algorithm, with the file named after it
--     ring_find.lua, ring.lua  what sliding_log.lua and sliding_buckets.lua share
--     block.lua                blocks keys, and refuses blocked ones
--     reset.lua
--     answer.lua               writes the reply, and decides which charge comes next
--   end
--
-- KEYS     one key for each charge
-- ARGV[1]  the operation: 'a' acquire, 'p' peek, 'f' force, 'g' refund, 'r' reset, 't' trial, 'b'
--          acquire for several checks, one after the other, 'k' block, 'u' unblock
-- ARGV[2]  the charges, packed: algorithm, flags (1 shadow, 2 an earlier charge of the check has the
--          same key, 4 a lease: it leaves half of what is free beyond its cost, 8 last charge of its
--          check), limit, window, parameter, cost and the most units to take, for a block its
--          duration; for a refund also the mark of the spent charge, and its limit and window. The
--          live charges of a check come before its shadows
-- ARGV[3]  the time in microseconds; only tests pass it
-- STATE    see each algorithm. A charge is viewed (its state read and brought to `now`) before any
--          charge of its check is written
-- RETURNS  packed doubles: the time, then for each charge units, remaining, next_after, reset_after,
--          retry_after (microseconds) and the three numbers of its mark. With 'b', a check that
--          meets a foreign value has -1 for the units of all its charges and spends nothing; the
--          other checks are decided
-- TTL      each key expires when its state stops mattering (see each algorithm); with a time from a
--          test, one day after the last write
--
-- All numbers are integers below 2^53.
local call, pack, parse = redis.call, struct.pack, struct.unpack
local floor, format, sub = math.floor, string.format, string.sub
local keys, operation, charges = KEYS, ARGV[1], ARGV[2]
local batch = operation == 'b'
local acquiring, forcing = operation == 'a' or batch, operation == 'f'
local refunding, resetting = operation == 'g', operation == 'r'
-- In a batch, a key of another type fails its own check only.
local read = batch and redis.pcall or call
local now = ARGV[3]
local for_test = now
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
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Take out the whole multiples of c, so that a is below c.
  local rest = a % c
  local quotient = (a - rest) / c * b
  a, product = rest, rest * b + d
  if product < 9007199254740992 then
    rest = product % c
    return quotient + (product - rest) / c, rest
  end
  -- Long division, a few bits of b at a time, so that no step exceeds 2^53.
  local more
  rest, more = 0, 0
  local bit = 1
  if c < 35184372088832 then
    while bit * 128 <= b do bit = bit * 128 end
    while bit >= 1 do
      local digit = floor(b / bit)
      b = b - digit * bit
      local sum = rest * 128 + a * digit
      rest = sum % c
      more = more * 128 + (sum - rest) / c
      bit = bit / 128
    end
  else
    while bit * 2 <= b do bit = bit * 2 end
    while bit >= 1 do
      more = more * 2
      if rest >= c - rest then rest, more = rest - (c - rest), more + 1 else rest = rest + rest end
      if b >= bit then
        b = b - bit
        if rest >= c - a then rest, more = rest - (c - a), more + 1 else rest = rest + a end
      end
      bit = bit / 2
    end
  end
  local sum = rest + d
  rest = sum % c
  return quotient + more + (sum - rest) / c, rest
end

-- Writes a state that matters until `time`, in microseconds.
local function store(key, state, time)
  if for_test then
    call('SET', key, state, 'PX', '86400000')
  else
    call('SET', key, state, 'PXAT', format('%d', (time - time % 1000) / 1000 + 1))
  end
end

-- The first charge that needs one of these functions defines it: a closure costs time.
local find, bucket_end

-- The headers of the blocked keys, once block.lua has met one. The state of such a key is behind its
-- header: at `offset`, and the ring of a log at `ring_at`.
local blocks
local offset, ring_at = '0', 238

-- The charges are counted from 1 over all checks of the call. `first` and `last` are those of the
-- check at hand; `charge` is the one of this turn of the loop.
local total, width = #keys, refunding and 82 or 42
local charge, first, last = 0, 1, nil
-- Pass 1 views every charge of a check: it is admitted if each live one passes. Pass 2 answers them.
-- The last charge is answered in pass 1, since no other comes between: so a check of one charge
-- takes one turn. `unanswered` is the last charge that pass 1 leaves to pass 2.
local committing, admitted, unanswered = false, true, nil
-- The states that pass 1 has read, for pass 2, and the parts of the reply. The constructors reserve
-- room for most calls.
local states = total > 1 and { false, false, false, false, false, false, false, false }
local reply = total > 1 and { pack('<d', now), '', '', '', '', '', '', '', '' }
