-- Every line twice: looked at, then answered. Check all, then commit all.
--
-- An algorithm is one branch of this loop. When `looking` it reads the state and sees it at `now`
-- under the line's quota: `s.free` are the units that can be spent at once. Else it spends
-- `units`, or gives them back when `giving`, and says where the key then stands: next_after and
-- the others are waits in microseconds.
local count = #KEYS
local seen_lines, reply = {}, pack('<d', now)
local at, step, again, admitted, read, seek = 1, 0, false, true, nil, nil
while step < 2 * count or again do
  local looking = false
  if again then
    again = false
  else
    step = step + 1
    looking = step <= count
  end
  local key, s, units, giving = nil, nil, 0, false
  local next_after, reset_after, retry_after = 0, 0, 0
  if looking then
    key = KEYS[step]
    s = {}
    seen_lines[step] = s
    s.algorithm, s.flags, s.limit, s.window, s.parameter, s.cost, s.most, at =
      parse('<BBddddd', lines, at)
    s.mark1, s.mark2, s.mark3 = 0, 0, 0
    if op == 'g' then
      s.mark1, s.mark2, s.mark3, s.spent_limit, s.spent_window, at = parse('<ddddd', lines, at)
    end
  else
    key = KEYS[step - count]
    s = seen_lines[step - count]
    if s.flags >= 2 then
      -- A line before this one may have changed this key: it is looked at again.
      s.flags = s.flags - 2
      looking, again = true, true
    elseif op == 'a' then
      if admitted and s.cost <= s.free then
        units = s.most < s.free and s.most or s.free
      end
    elseif op == 'f' then
      units = s.cost
    elseif op == 'g' then
      giving, units = true, s.cost
    end
  end

