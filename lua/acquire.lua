-- Every line twice: looked at, then answered. Check all, then commit all; one check after the other.
--
-- An algorithm is one branch of this loop. When `looking` it reads the state and sees it at `now`
-- under the line's quota: `free` are the units that can be spent at once. Else it spends `units`,
-- or gives them back when `giving`, and says where the key then stands: next_after and the others
-- are waits in microseconds. Where other lines come between, what was seen is `saved`.
local total = #KEYS
local width = op == 'g' and 82 or 42
-- With room for the answers of most checks.
local reply = total > 1 and { pack('<d', now), '', '', '', '', '', '', '', '' }
-- The lines before this check, its lines, and what was seen of them.
local before_check, count, states = 0, 0, nil
local step, stop, looking, again, admitted, line, place = 0, 0, true, false, true, 0, 0
local find, foreign
local algorithm, flags, limit, window, parameter, cost, most, free
local mark1, mark2, mark3, spent_limit, spent_window
-- What the algorithms see: see their branches.
local saved, counted, first, last, fresh, debt, credit, anchor, ahead, paid_in
local current, previous, before, old, following
local header, text, from, known, held_window, shift, start, head, tail, places, until_ms, before_last
local last_time, last_total, head_time, head_total, origin, leaving, seen, base, first_time, first_total
local used, stamp
while true do
  local units, giving, next_after, reset_after, retry_after = 0, false, 0, 0, 0
  if again then
    again, looking = false, false
  else
    if step == stop then
      before_check = before_check + count
      if before_check == total then return table.concat(reply) end
      count = total - before_check
      if batch then
        count = 1
        while string.byte(lines, (before_check + count) * width - width + 2) < 4 do
          count = count + 1
        end
      end
      step, stop, admitted = 0, 2 * count, true
      states = count > 1 and { 0, 0, 0, 0, 0, 0, 0, 0 }
    end
    step = step + 1
    looking = step <= count
    line = looking and step or step - count
    place = before_check + line
    algorithm, flags, limit, window, parameter, cost, most =
      parse('<BBddddd', lines, place * width - width + 1)
    mark1, mark2, mark3 = 0, 0, 0
    if op == 'g' then
      mark1, mark2, mark3, spent_limit, spent_window =
        parse('<ddddd', lines, place * width - width + 43)
    end
    saved = states
    if flags % 4 >= 2 then
      -- A line before this one may have changed this key: it is looked at again.
      if not looking then looking, again, saved = true, true, nil end
    elseif step == count then
      -- Nothing comes between: the last line is answered at once.
      again, stop, saved = true, stop - 1, nil
    end
  end
  local key = KEYS[place]
  if not looking then
    if saved then free = saved[line][1] end
    if op == 'a' then
      if admitted and cost <= free then units = most < free and most or free end
    elseif op == 'f' then
      units = cost
    elseif op == 'g' then
      giving, units = true, cost
    end
  end

