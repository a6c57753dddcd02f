-- tollgate: the limiter's one script. What every request needs: arguments, time, exact arithmetic.
--
-- KEYS     one key a line
-- ARGV[1]  what to do: 'a' acquire, 'p' peek, 'f' force, 'g' give back, 'r' reset; 'b' acquire for
--          several checks, one after the other
-- ARGV[2]  the lines, packed; those of a check that bind come before those on trial. A line is the
--          algorithm, flags (1 on trial, 2 its key is an earlier line's too, 4 ends a check), then
--          limit, window, parameter, cost and the most units to take
-- ARGV[3]  the time in microseconds: tests alone pass it
-- RETURNS  packed doubles: the time, then for each line the units, remaining, next_after,
--          reset_after, retry_after and the three numbers of its mark. Of several checks, one that
--          cannot be decided has -1 for units, spends nothing and does not keep the others back
-- TTL      every key expires when its state stops mattering (see each algorithm); under a time
--          from a test, a day after its last change
--
-- Numbers are integers below 2^53. Nothing is written before everything has been read.
local call, pack, parse = redis.call, struct.pack, struct.unpack
local floor, format, sub = math.floor, string.format, string.sub
local op, lines = ARGV[1], ARGV[2]
local batch, read = op == 'b', call
if batch then op, read = 'a', redis.pcall end
local now = ARGV[3]
local for_test = now
if now then
  now = tonumber(now)
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Quotient and remainder of (a * b + d) / c. The product may exceed 2^53, c and d are below 2^45
-- wherever it does, or else c is below 2^52.
local function mul_div(a, b, d, c)
  local product = a * b + d
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Whole multiples of c first: what is left is below c.
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

-- Writes a state that matters until `time`.
local function store(key, state, time)
  if for_test then
    call('SET', key, state, 'PX', '86400000')
  else
    call('SET', key, state, 'PXAT', format('%d', (time - time % 1000) / 1000 + 1))
  end
end
