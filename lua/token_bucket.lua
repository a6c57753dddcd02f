  -- Token bucket: refills steadily, up to a burst. The debt at `anchor` is debt - credit / window.
  -- STATE debt, credit, anchor, paid_at, window, expiry in ms   MARK anchor, debt, credit
  -- TTL   paid_at and an eighth of the window, renewed when the key would expire before paid_at
  elseif algorithm == 4 then
    if looking then
      local state = read('GET', key)
      debt, credit, anchor, ahead, paid_in, until_ms = 0, 0, 0, 0, 0, 0
      if state then
        local owed, part, paid_at, old, paid = 0, 0, 0, 0, nil
        if #state == 38 then
          owed, part, anchor, paid_at, old, until_ms = parse('<I6I6I7I7I6I6', state)
        else
          foreign = key
        end
        if anchor > 9007199254740991 or paid_at > 9007199254740991 then foreign = key end
        if anchor > now then ahead = anchor - now end
        -- Under any quota: a debt never outlives the rule under which it was made.
        if now + ahead < paid_at then
          if old ~= window then part = mul_div(part, window, 0, old) end
          paid = (now + ahead - anchor) * limit + part
          if paid < 9007199254740992 then
            part = paid % window
            paid = (paid - part) / window
          else
            paid, part = mul_div(now + ahead - anchor, limit, part, window)
          end
          -- A lower limit acts at once, but nobody waits longer than from empty. What is beyond
          -- goes before the refill counts, or no wait would end.
          if owed > parameter + limit then owed = parameter + limit end
          if paid < owed then
            debt, credit, paid_in = owed - paid, part, paid_at - now - ahead
          end
        end
      end
      free = parameter > debt and parameter - debt or 0
      if saved then saved[line] = { free, debt, credit, anchor, ahead, paid_in, until_ms } end
    else
      if saved then free, debt, credit, anchor, ahead, paid_in, until_ms = unpack(saved[line]) end
      if giving then
        -- Debts are paid in the order in which they were made: what is left of this one is what
        -- the refill since has not reached.
        local elapsed = now + ahead > mark1 and now + ahead - mark1 or 0
        local paid, rest = mul_div(elapsed, spent_limit, mark3, spent_window)
        local left = mark2 - paid - (rest > 0 and 1 or 0)
        local owed = debt - (credit > 0 and 1 or 0)
        if units > left then units = left end
        if units > owed then units = owed end
        if units < 0 then units = 0 end
        debt = debt - units
      elseif units > 0 then
        debt = debt + units
        if debt > parameter + limit then debt = parameter + limit end
      end
      local rest = 0
      if debt > 0 then
        -- ceil((debt * window - credit) / limit)
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
        ahead = anchor - now
        if not giving then mark1, mark2, mark3 = anchor, debt, credit end
        paid_in = reset_after
        local paid_at = anchor + paid_in
        local slack = until_ms * 1000 - paid_at
        if slack > 0 and slack <= window / 8 + 2000 then
          call('SETRANGE', key, '0', pack('<I6I6I7I7I6', debt, credit, anchor, paid_at, window))
        else
          until_ms = floor((paid_at + window / 8) / 1000) + 1
          store(key, pack('<I6I6I7I7I6I6', debt, credit, anchor, paid_at, window, until_ms),
            until_ms * 1000 - 1000)
        end
        free = parameter > debt and parameter - debt or 0
      end
      if debt > 0 then
        -- How long until the debt has come down to what a charge leaves room for.
        reset_after = (reset_after < paid_in and reset_after or paid_in) + ahead
        local above = debt - parameter
        if above <= 0 then
          next_after = window - credit
          rest = next_after % limit
          next_after = (next_after - rest) / limit
        else
          next_after, rest = mul_div(above, window, window - credit, limit)
        end
        if rest > 0 then next_after = next_after + 1 end
        next_after = (next_after < paid_in and next_after or paid_in) + ahead
        above = debt + cost - parameter
        if units == 0 and above > 0 and cost <= parameter then
          retry_after, rest = mul_div(above - 1, window, window - credit, limit)
          if rest > 0 then retry_after = retry_after + 1 end
          retry_after = (retry_after < paid_in and retry_after or paid_in) + ahead
        end
      end
    end
