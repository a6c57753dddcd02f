-- Reads the next charge, and declares what the rest of the loop's body works with.
--
-- KEYS     the key of the charge
-- ARGV[2]  its fields: see prelude.lua
-- STATE    none read
-- RETURNS  nothing: answer.lua does
-- TTL      nothing is written
charge = charge + 1
local key = keys[charge]
local algorithm, flags, limit, window, parameter, cost, max_cost =
  parse('<BBddddd', charges, charge * width - width + 1)
local shadow, same_key, is_last = flags % 2 == 1, flags % 4 >= 2, flags >= 8

-- A branch reads the `state`, unless pass 1 has, and finds out how many units are `free`. When
-- `answering`, it also spends or refunds, and says where the key then stands. A state that an earlier
-- charge may have changed is read again.
local answering = committing or is_last and not same_key
local already_read, state = committing and not same_key, nil
if already_read then state = states[charge - first + 1] end
local free, foreign
-- The end of the key's block, while it is blocked.
local block_end
if blocks then
  offset, ring_at = '0', 238
  if blocks[key] then
    offset, ring_at, block_end = 28, 266, parse('<I7', blocks[key], 8)
    if block_end <= now then block_end = nil end
    -- No algorithm reads more of a state than this at once.
    if not already_read then state = call('GETRANGE', key, 28, 334) end
    if state == '' then state = false end
    already_read = true
  end
end
-- A charge spends if at least `needed` units are free. `units` are those that it spends or refunds.
local needed, units = 9007199254740992, 0
if acquiring then
  if admitted and not block_end then needed = cost end
elseif forcing or refunding then
  units = cost
end
-- The mark of what was spent, by which a refund finds it.
local mark1, mark2, mark3, spent_limit, spent_window = 0, 0, 0, nil, nil
if refunding then
  mark1, mark2, mark3, spent_limit, spent_window =
    parse('<ddddd', charges, charge * width - width + 43)
end
-- Waits in microseconds, all 0 while the key is untouched.
local next_after, reset_after, retry_after = 0, 0, 0
-- The most units that can ever be free.
local capacity = limit
-- Whether ring.lua counts this charge, and the number of buckets to which it then rounds times.
local in_ring, buckets
