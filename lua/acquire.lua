-- Every line twice: looked at, then answered. Check all, then commit all.
--
-- An algorithm is one branch of this loop. When `looking` it reads the state and sees it at `now`
-- under the line's quota: `free` are the units that can be spent at once. Else it spends `units`,
-- or gives them back when `giving`, and says where the key then stands: next_after and the others
-- are waits in microseconds. With several lines, what was seen is `saved` from one to the other.
local count = #KEYS
-- Several lines are unpacked at once.
local saved, asked, fields, reply
if count > 1 then
  saved, reply = { 0, 0, 0, 0, 0, 0, 0, 0 }, pack('<d', now)
  asked = { parse('<' .. string.rep(op == 'g' and 'BBdddddddddd' or 'BBddddd', count), lines) }
  fields = op == 'g' and 12 or 7
end
local step, looking, again, admitted, find, foreign = 0, true, false, true, nil, nil
local algorithm, flags, limit, window, parameter, cost, most, free
local spent_limit, spent_window
-- What the algorithms see: see their branches.
local counted, first, last, fresh, debt, credit, anchor, ahead, paid_in
local current, previous, before, old, following
local header, text, from, known, held_window, shift, start, head, tail, places, until_ms, before_last
local last_time, last_total, head_time, head_total, origin, leaving, seen, base, first_time, first_total
local used, stamp
while step < 2 * count or again do
  local seen_again = again
  if again then
    again, looking = false, false
  else
    step = step + 1
    looking = step <= count
  end
  local line = step <= count and step or step - count
  local key = KEYS[line]
  local units, giving, next_after, reset_after, retry_after = 0, false, 0, 0, 0
  local mark1, mark2, mark3 = 0, 0, 0
  if saved then
    local i = (line - 1) * fields
    algorithm, flags, limit, window, parameter, cost, most = asked[i + 1], asked[i + 2],
      asked[i + 3], asked[i + 4], asked[i + 5], asked[i + 6], asked[i + 7]
    if op == 'g' then
      mark1, mark2, mark3, spent_limit, spent_window =
        asked[i + 8], asked[i + 9], asked[i + 10], asked[i + 11], asked[i + 12]
    end
  elseif looking then
    algorithm, flags, limit, window, parameter, cost, most = parse('<BBddddd', lines)
  elseif op == 'g' then
    mark1, mark2, mark3, spent_limit, spent_window = parse('<ddddd', lines, 43)
  end
  if not looking then
    if flags >= 2 and not seen_again then
      -- A line before this one may have changed this key: it is looked at again.
      looking, again = true, true
    else
      if saved then free = saved[line][1] end
      if op == 'a' then
        if admitted and cost <= free then units = most < free and most or free end
      elseif op == 'f' then
        units = cost
      elseif op == 'g' then
        giving, units = true, cost
      end
    end
  end

