  -- Token bucket: refills steadily, up to a burst. The debt at `anchor` is debt - credit / window.
  -- STATE debt, credit, anchor, paid_at, window   MARK anchor, debt, credit   TTL paid_at
  elseif s.algorithm == 4 then
    if looking then
      local state, debt, credit, anchor, paid_at, window = call('GET', key), 0, 0, 0, 0, 0
      if state then
        if #state ~= 32 then return foreign(key) end
        debt, credit, anchor, paid_at, window = parse('<I6I6I7I7I6', state)
        if debt > 4503599627370496 or anchor > 9007199254740991 then return foreign(key) end
      end
      local ahead = anchor > now and anchor - now or 0
      s.anchor, s.ahead, s.debt, s.credit = anchor, ahead, 0, 0
      -- Under any quota: a debt never outlives the rule under which it was made.
      if now + ahead < paid_at then
        if window ~= s.window then credit = mul_div(credit, s.window, 0, window) end
        local paid
        paid, credit = mul_div(now + ahead - anchor, s.limit, credit, s.window)
        if paid < debt then
          -- A lower limit acts at once, but nobody waits longer than from empty.
          s.debt, s.credit = debt - paid, credit
          if s.debt > s.parameter + s.limit then s.debt = s.parameter + s.limit end
        end
      end
    else
      if giving then
        -- Debts are paid in the order in which they were made: what is left of this one is what
        -- the refill since has not reached.
        local late = now + s.ahead
        local elapsed = late > s.mark1 and late - s.mark1 or 0
        local paid, rest = mul_div(elapsed, s.spent_limit, s.mark3, s.spent_window)
        local left = s.mark2 - paid - (rest > 0 and 1 or 0)
        local owed = s.debt - (s.credit > 0 and 1 or 0)
        if units > left then units = left end
        if units > owed then units = owed end
        if units < 0 then units = 0 end
        s.debt = s.debt - units
      elseif units > 0 then
        s.debt = s.debt + units
        if s.debt > s.parameter + s.limit then s.debt = s.parameter + s.limit end
      end
      local paid_in, rest = 0, 0
      if s.debt > 0 then
        paid_in, rest = mul_div(s.debt - 1, s.window, s.window - s.credit, s.limit)
        if rest > 0 then paid_in = paid_in + 1 end
      end
      if units > 0 then
        if now > s.anchor then s.anchor = now end
        s.ahead = s.anchor - now
        if not giving then s.mark1, s.mark2, s.mark3 = s.anchor, s.debt, s.credit end
        local paid_at = s.anchor + paid_in
        store(key, pack('<I6I6I7I7I6', s.debt, s.credit, s.anchor, paid_at, s.window), paid_at)
        if s.debt == 0 then s.credit, s.ahead = 0, 0 end
      end
      reset_after = paid_in
    end
    s.free = s.parameter > s.debt and s.parameter - s.debt or 0
    if not looking and s.debt > 0 then
      reset_after = s.ahead + reset_after
      -- The debt may come down to burst - units.
      local allowed = s.parameter - s.free - 1
      if allowed >= 0 then
        local wait, rest = mul_div(s.debt - allowed - 1, s.window, s.window - s.credit, s.limit)
        next_after = s.ahead + wait + (rest > 0 and 1 or 0)
      end
      if s.cost > s.free and s.cost <= s.parameter then
        allowed = s.parameter - s.cost
        local wait, rest = mul_div(s.debt - allowed - 1, s.window, s.window - s.credit, s.limit)
        retry_after = s.ahead + wait + (rest > 0 and 1 or 0)
      end
    end
