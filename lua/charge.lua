-- Reads the charge and the beginning of its state, and declares what the rest works with.
--
-- KEYS     the key of the charge
-- ARGV[2]  its fields: see prelude.lua
-- STATE    read
-- RETURNS  nothing: answer.lua does
-- TTL      nothing is written
local key = keys[charge]
-- A charge has 42 bytes, and 82 with the mark of a refund.
local position = operation == 'g' and charge * 82 - 81 or charge * 42 - 41
local algorithm, flags, limit, window, parameter, cost, max_cost =
  parse('<BBddddd', lines, position)

-- A charge with the key of an earlier one is committed when that one has been written.
local answering = again or flags % 4 < 2
if again and flags % 4 < 2 then return end
if not answering and not repeated then repeated = charge end
-- The number of the last charge of the check, and whether it is another one.
local last, is_followed = charge, not again and flags < 16
-- A branch reads the `state`, finds out how many units are `free`, and leaves what is to be `written`:
-- a whole state, with the time when it `expires`, or the beginning of one, which keeps its expiry. `is_prefix` is
-- true for the beginning of a state with a new expiry.
local free, foreign, written, expires, is_prefix
-- The check passes this charge if at least `required` units are free: a shadow or a trial never refuses.
local required = flags % 2 == 1 and 0 or cost
-- A trial is spent if it passes by itself, whatever the check decides.
local trial = flags % 16 >= 8
-- The state of a blocked key is behind the header of the block: at `offset`, and the ring of a log at
-- `ring_at`. `block_end` is the end of the block, while it lasts.
local offset, ring_at, block_end = '0', 238, nil
-- No algorithm reads more of a state than this at once.
local state
if block_header then
  offset, ring_at, block_end = 28, 266, parse('<I7', block_header, 8)
  if block_end <= now then block_end = nil end
  if block_end and required > 0 then required = 9007199254740992 end
  state = call('GETRANGE', key, '28', '465')
else
  state = algorithm <= 2 and read('GETRANGE', key, '0', '437') or algorithm > 2 and read('GET', key) or ''
end
-- If all live charges pass and at least `needed` units are free, units are spent: `units` says how many. A
-- force or a refund has them from the beginning.
local needed, units = cost, 0
if block_end or operation ~= 'a' and operation ~= 'b' then
  needed = 9007199254740992
  if operation == 'f' or operation == 'g' then units = cost end
end
-- The mark of what was spent, by which a refund finds it.
local mark1, mark2, mark3, spent_limit, spent_window = 0, 0, 0
if operation == 'g' then
  mark1, mark2, mark3, spent_limit, spent_window = parse('<ddddd', lines, position + 42)
end
-- Waits in microseconds, all 0 while the key is untouched.
local next_after, reset_after, retry_after = 0, 0, 0
-- The maximum number of free units.
local capacity = limit
-- `in_ring` is true if ring.lua counts this charge. `buckets` is then the number of buckets in a window, and
-- `in_flight` is true under a concurrency limit. `fade` is a number if periods.lua counts this charge.
local fade, in_ring, in_flight, buckets
