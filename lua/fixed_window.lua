-- Fixed window: one counter that starts again at each multiple of the window.
--
-- KEYS     the key of the charge
-- ARGV[2]  limit, window, cost, max_cost
-- STATE    21 bytes: count, start and end of the period
-- RETURNS  the standing; mark: start
-- TTL      the end of the period; set when the period begins or is cut short
if not already_read then state = read('GET', key) end
local count, start, end_, renew = 0, 0, 0, true
if state then
  if #state == 21 then count, start, end_ = parse('<I7I7I7', state) else foreign = true end
  if count > 4503599627370496 then foreign = true end
  if foreign then answering = false end
  -- After a change of the window, units leave at the earlier of the old and the new rule.
  local edge = start - start % window + window
  renew = edge < end_
  if renew then end_ = edge end
end
if now >= end_ then
  count, start = 0, now - now % window
  end_, renew = start + window, true
end
free = limit > count and limit - count or 0
if answering then
  if refunding then
    if start ~= mark1 then units = 0 elseif units > count then units = count end
    count = count - units
  else
    if free >= needed then units = max_cost < free and max_cost or free end
    if units > 0 then
      count = count + units
      -- Far beyond any limit, forced charges stop counting.
      if count > 4503599627370496 then count = 4503599627370496 end
      mark1 = start
    end
  end
  if units > 0 then
    state = pack('<I7I7I7', count, start, end_)
    if renew then store(key, state, end_) else call('SETRANGE', key, '0', state) end
    free = limit > count and limit - count or 0
  end
  if count > 0 then
    next_after = end_ - now
    reset_after, retry_after = next_after, next_after
  end
end
