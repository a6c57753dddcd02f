-- Token bucket: refills steadily, up to a burst. The debt at `anchor` is debt - credit / window units.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (the burst), cost, max_cost; of a refund also the limit and
--          window under which the charge was made
-- STATE    36 bytes: debt, credit, and time, limit and window of the last charge (the time is the
--          anchor), and when the key expires in milliseconds
-- RETURNS  the standing; mark: anchor, debt, credit
-- TTL      when the debt is paid off, and a second and an eighth of the window more; renewed when the key
--          would expire before the debt is paid off
local layout = '<I6I6I7I5I6I6'

local burst = parameter
capacity = burst
local debt, credit, anchor, ahead, rate_limit, rate_window, until_ms = 0, 0, 0, 0, limit, window, 0
local old_debt, old_credit, old_limit, old_window = 0, 0, limit, window
if state ~= '' then
  if #state == 36 then
    old_debt, old_credit, anchor, old_limit, old_window, until_ms = parse(layout, state)
  end
  foreign = #state ~= 36 or anchor > 9007199254740991 or old_limit == 0 or old_credit >= old_window
    or old_window > 34560000000000 or old_debt * old_window > 69120000000000 * old_limit
  if foreign then
    old_debt, old_credit, anchor, old_limit, old_window = 0, 0, 0, limit, window
  elseif anchor > now + old_window then
    -- The clock has been set back: the debt is taken as made now.
    anchor = now
    local payoff = old_debt > 0 and div_up(old_debt, old_window, old_credit, old_limit) or 0
    until_ms = math.floor((now + payoff + old_window / 8) / 1000) + 1001
    state = pack(layout, old_debt, old_credit, anchor, old_limit, old_window, until_ms)
    written, expires = state, until_ms * 1000 - 1000
  end
  -- By how much the bucket is ahead of a clock that ran backward.
  if anchor > now then ahead = anchor - now end
  local elapsed = now + ahead - anchor
  credit = old_credit
  if old_limit ~= limit or old_window ~= window then
    -- Since the last charge the faster of the old and the new rate counts.
    if mul_div(limit, old_window, 0, window) < old_limit then
      rate_limit, rate_window = old_limit, old_window
    elseif old_window ~= window then
      credit = mul_div(credit, window, 0, old_window)
    end
  end
  local paid = elapsed * rate_limit + credit
  if paid < 9007199254740992 then
    -- Without a call, which takes as long as ten steps.
    credit = paid % rate_window
    paid = (paid - credit) / rate_window
  else
    paid, credit = mul_div(elapsed, rate_limit, credit, rate_window)
  end
  if paid < old_debt then debt = old_debt - paid else credit = 0 end
end
free = burst > debt and burst - debt or 0
local commits = answering and not foreign
if is_followed and not foreign then
  admitted, foreign, last =
    decide(operation, now, charge + 1, admitted and free >= required)
  if foreign then return nil, foreign end
end
if operation == 'g' and commits then
  -- Debts are paid in the order in which they were made. So the units left of this debt are those
  -- that the refill since the charge has not paid, at the fastest rate that is known.
  local fast_limit, fast_window = spent_limit, spent_window
  if mul_div(spent_limit, rate_window, 0, spent_window) < rate_limit then
    fast_limit, fast_window = rate_limit, rate_window
  end
  local paid_part = mark3
  if fast_window ~= spent_window then paid_part = div_up(mark3, fast_window, 0, spent_window) end
  local since = now + ahead > mark1 and now + ahead - mark1 or 0
  local repaid, rest = mul_div(since, fast_limit, paid_part, fast_window)
  local left = mark2 - repaid - (rest > 0 and 1 or 0)
  local unpaid = debt - (credit > 0 and 1 or 0)
  if units > left then units = left end
  -- The clock has been set back since: how much of this debt is left is not known.
  if mark1 > now + ahead + spent_window then units = 0 end
  units = math.max(0, math.min(units, unpaid))
  if units > 0 then
    debt = debt - units
    written = pack('<I6', old_debt - units) .. string.sub(state, 7)
    free = burst > debt and burst - debt or 0
  end
end
if commits then
  if operation ~= 'g' then
    if (admitted or trial) and free >= needed then
      units = max_cost > cost and units_of(free, cost, max_cost, flags) or cost
    end
    if units > 0 then
      if rate_window ~= window then credit = mul_div(credit, window, 0, rate_window) end
      rate_limit, rate_window = limit, window
      if debt <= burst + limit then
        debt = debt + units
        if debt > burst + limit then debt = burst + limit end
      else
        -- An earlier quota allowed a larger debt. It stays, while a timestamp can hold its end.
        local longest = mul_div(69120000000000, limit, 0, window)
        if debt > longest then debt = longest end
      end
      free = burst > debt and burst - debt or 0
    end
  end
  -- The waits are those by the rate until the next charge.
  -- So many units of the debt are paid after ceil((units * window - credit) / limit).
  if debt > 0 then reset_after = div_up(debt, rate_window, credit, rate_limit) end
  if units > 0 and operation ~= 'g' then
    if now > anchor then anchor = now end
    ahead = anchor - now
    mark1, mark2, mark3 = anchor, debt, credit
    local paid_at = anchor + reset_after
    local spare = until_ms * 1000 - paid_at
    if spare > 0 and spare <= window / 8 + 1002000 and limit == old_limit and window == old_window
      and not written then
      written = pack('<I6I6I7', debt, credit, anchor)
    else
      until_ms = math.floor((paid_at + window / 8) / 1000) + 1001
      written, expires = pack(layout, debt, credit, anchor, limit, window, until_ms),
        until_ms * 1000 - 1000
    end
  end
  if debt > 0 then
    -- The wait until the debt is so low that the charge fits.
    reset_after = reset_after + ahead
    local excess = debt > burst and debt - burst or 0
    next_after = ahead + div_up(excess + 1, rate_window, credit, rate_limit)
    excess = debt + cost - burst
    if units == 0 and excess > 0 and cost <= burst then
      retry_after = ahead + div_up(excess, rate_window, credit, rate_limit)
    end
  end
end
