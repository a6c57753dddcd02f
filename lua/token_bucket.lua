-- Token bucket: refills steadily, up to a burst. The debt at `anchor` is debt - credit / window units.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, parameter (the burst), cost, max_cost; of a refund also the limit and
--          window under which the charge was made
-- STATE    38 bytes: debt, credit, anchor, paid_at, window, and when the key expires in milliseconds
-- RETURNS  the standing; mark: anchor, debt, credit
-- TTL      paid_at and an eighth of the window; renewed when the key would expire before paid_at
local burst = parameter
capacity = burst
if not already_read then state = read('GET', key) end
local debt, credit, anchor, ahead, paid_in, until_ms = 0, 0, 0, 0, 0, 0
if state then
  local old_debt, old_credit, paid_at, old_window = 0, 0, 0, 0
  if #state == 38 then
    old_debt, old_credit, anchor, paid_at, old_window, until_ms = parse('<I6I6I7I7I6I6', state)
  else
    foreign = true
  end
  if anchor > 9007199254740991 or paid_at > 9007199254740991 then foreign = true end
  if foreign then answering = false end
  -- By how much the bucket is ahead of a clock that ran backward.
  if anchor > now then ahead = anchor - now end
  -- Under any quota, a debt never outlives the rule under which it was made.
  if now + ahead < paid_at then
    if old_window ~= window then old_credit = mul_div(old_credit, window, 0, old_window) end
    local paid, rest = (now + ahead - anchor) * limit + old_credit, nil
    if paid < 9007199254740992 then
      rest = paid % window
      paid = (paid - rest) / window
    else
      paid, rest = mul_div(now + ahead - anchor, limit, old_credit, window)
    end
    -- A lower limit acts at once, but no charge waits longer than from empty. The debt beyond
    -- that is dropped before the refill counts, or no wait would end.
    if old_debt > burst + limit then old_debt = burst + limit end
    if paid < old_debt then
      debt, credit, paid_in = old_debt - paid, rest, paid_at - now - ahead
    end
  end
end
free = burst > debt and burst - debt or 0
if answering then
  if refunding then
    -- Debts are paid in the order in which they were made: what is left of this one is what the
    -- refill since has not reached.
    local elapsed = now + ahead > mark1 and now + ahead - mark1 or 0
    local paid, rest = mul_div(elapsed, spent_limit, mark3, spent_window)
    local left = mark2 - paid - (rest > 0 and 1 or 0)
    local unpaid = debt - (credit > 0 and 1 or 0)
    if units > left then units = left end
    if units > unpaid then units = unpaid end
    if units < 0 then units = 0 end
    debt = debt - units
  else
    if free >= needed then units = max_cost < free and max_cost or free end
    if units > 0 then
      debt = debt + units
      if debt > burst + limit then debt = burst + limit end
    end
  end
  if debt > 0 then
    -- ceil((debt * window - credit) / limit)
    local rest
    reset_after = debt * window - credit
    if reset_after < 9007199254740992 then
      rest = reset_after % limit
      reset_after = (reset_after - rest) / limit
    else
      reset_after, rest = mul_div(debt - 1, window, window - credit, limit)
    end
    if rest > 0 then reset_after = reset_after + 1 end
  end
  if units > 0 then
    if now > anchor then anchor = now end
    ahead, paid_in = anchor - now, reset_after
    if not refunding then mark1, mark2, mark3 = anchor, debt, credit end
    local paid_at = anchor + paid_in
    local spare = until_ms * 1000 - paid_at
    if spare > 0 and spare <= window / 8 + 2000 then
      call('SETRANGE', key, '0', pack('<I6I6I7I7I6', debt, credit, anchor, paid_at, window))
    else
      until_ms = floor((paid_at + window / 8) / 1000) + 1
      store(key, pack('<I6I6I7I7I6I6', debt, credit, anchor, paid_at, window, until_ms),
        until_ms * 1000 - 1000)
    end
    free = burst > debt and burst - debt or 0
  end
  if debt > 0 then
    -- The wait until the debt is no more than what a charge leaves room for.
    reset_after = (reset_after < paid_in and reset_after or paid_in) + ahead
    local excess, rest = debt - burst, nil
    if excess <= 0 then
      next_after = window - credit
      rest = next_after % limit
      next_after = (next_after - rest) / limit
    else
      next_after, rest = mul_div(excess, window, window - credit, limit)
    end
    if rest > 0 then next_after = next_after + 1 end
    next_after = (next_after < paid_in and next_after or paid_in) + ahead
    excess = debt + cost - burst
    if units == 0 and excess > 0 and cost <= burst then
      retry_after, rest = mul_div(excess - 1, window, window - credit, limit)
      if rest > 0 then retry_after = retry_after + 1 end
      retry_after = (retry_after < paid_in and retry_after or paid_in) + ahead
    end
  end
end
