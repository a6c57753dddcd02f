-- Units that a key spent under an earlier window, for the fixed window and the sliding counter. The
-- twin of src/algorithm/carried.rs, which says how they leave.
--
-- KEYS     none
-- ARGV     none
-- STATE    14 bytes behind the state of the algorithm: the generation of the counters, and the time
--          until which it is needed; then 35 bytes for each group: its units, then hold and zero of its
--          own ramp, and hold and zero of that of a later window. All units of a group count until
--          `hold`, none from `zero` on, and evenly fewer in between
-- RETURNS  functions, made by a charge that has carried units
-- TTL      nothing is written
--
-- The functions get everything as arguments, because each captured variable costs every call time.
local function make_carried_functions(mul_div, parse, pack)
  local functions = {}

  local function ramp(units, hold, zero, time)
    if time >= zero then return 0 end
    if time <= hold then return units end
    local weight, rest = mul_div(units, zero - time, 0, zero - hold)
    return rest > 0 and weight + 1 or weight
  end

  local function weight(group, time)
    local units, hold, zero, later_hold, later_zero = unpack(group)
    local own, later = ramp(units, hold, zero, time), ramp(units, later_hold, later_zero, time)
    return own < later and own or later
  end

  local function zero_of(group)
    return group[3] < group[5] and group[3] or group[5]
  end

  -- Adds the units of a period. Beyond 8 groups the two oldest become one, which leaves with the
  -- later of them.
  local function add(groups, units, hold, zero, later_hold, later_zero)
    if units == 0 then return end
    for _, group in ipairs(groups) do
      if group[2] == hold and group[3] == zero and group[4] == later_hold
        and group[5] == later_zero then
        group[1] = group[1] + units
        if group[1] > 4503599627370496 then group[1] = 4503599627370496 end
        return
      end
    end
    groups[#groups + 1] = { units, hold, zero, later_hold, later_zero }
    if #groups > 8 then
      local oldest = groups[1]
      for i = 1, 8 do groups[i] = groups[i + 1] end
      groups[9] = nil
      local sum = oldest[1] + groups[1][1]
      if sum > 4503599627370496 then sum = 4503599627370496 end
      if zero_of(oldest) > zero_of(groups[1]) then groups[1] = oldest end
      groups[1][1] = sum
    end
  end

  -- Returns the groups in a state, behind its first `from` bytes, that counted at its last charge; the
  -- generation, which is 0 if there is none; and the time until which it is needed. Damaged groups,
  -- which no charge can have made, do not count.
  local function load(state, from, last)
    local groups, generation, until_ = {}, 0, 0
    local latest = last + 69120000000000
    if from < #state then
      generation, until_ = parse('<I7I7', state, from + 1)
      if generation > 9007199254740991 or until_ > latest then generation, until_ = 0, 0 end
    end
    from = from + 14
    while from < #state do
      local group = { parse('<I7I7I7I7I7', state, from + 1) }
      if last < zero_of(group) and group[3] <= latest and group[5] <= latest
        and group[1] <= 4503599627370496 then
        groups[#groups + 1] = group
      end
      from = from + 35
    end
    return groups, generation, until_
  end

  -- Returns the groups under the rule of a new window.
  local function bound(groups, hold, zero)
    local bounded = {}
    for _, group in ipairs(groups) do
      local units, own_hold, own_zero, later_hold, later_zero = unpack(group)
      if zero < later_zero then later_hold, later_zero = hold, zero end
      add(bounded, units, own_hold, own_zero, later_hold, later_zero)
    end
    return bounded
  end

  -- Returns the generation, and the groups that count at `time`, as bytes of a state.
  local function save(generation, until_, groups, time)
    if time >= until_ then return '' end
    local bytes = pack('<I7I7', generation, until_)
    for _, group in ipairs(groups) do
      if time < zero_of(group) then
        bytes = bytes .. pack('<I7I7I7I7I7', unpack(group, 1, 5))
      end
    end
    return bytes
  end

  -- Returns the number of units that count at `time`.
  local function used(groups, time)
    local sum = 0
    for _, group in ipairs(groups) do sum = sum + weight(group, time) end
    return sum
  end

  -- Returns the time from which no carried unit counts.
  local function zero(groups)
    local latest = 0
    for _, group in ipairs(groups) do
      if zero_of(group) > latest then latest = zero_of(group) end
    end
    return latest
  end

  -- Returns the first time from `low` to `high` at which `used_at` is at most `target`, as it is at
  -- `high`. It never grows with time.
  local function first_time(low, high, target, used_at)
    while low < high do
      local middle = low + math.floor((high - low) / 2)
      if used_at(middle) <= target then high = middle else low = middle + 1 end
    end
    return low
  end

  -- Takes `units` out of the first group in `state` of the period with this ramp that counts at
  -- `time`. Returns their number, and the state.
  local function take(state, from, hold, zero, time, units)
    from = from + 14
    while from < #state do
      local group = { parse('<I7I7I7I7I7', state, from + 1) }
      if group[2] == hold and group[3] == zero and weight(group, time) > 0 then
        if units > group[1] then units = group[1] end
        return units, string.sub(state, 1, from) .. pack('<I7', group[1] - units) .. string.sub(state, from + 8)
      end
      from = from + 35
    end
    return 0, state
  end

  -- Returns whether units of the period with this ramp count at `time`.
  local function counts(groups, hold, zero, time)
    for _, group in ipairs(groups) do
      if group[2] == hold and group[3] == zero and weight(group, time) > 0 then return true end
    end
    return false
  end

  functions.add, functions.load, functions.bound, functions.save = add, load, bound, save
  functions.used, functions.zero, functions.first_time = used, zero, first_time
  functions.take, functions.counts = take, counts
  return functions
end
