-- Reset: forgets a key. Its algorithm has viewed it, so a foreign value is not deleted.
--
-- KEYS     the key of the charge
-- ARGV     none
-- STATE    deleted
-- RETURNS  the standing of an untouched key, and 1 unit if the key had spent units or was blocked
-- TTL      none
if operation == 'r' and answering and not foreign then
  call('DEL', key)
  written = nil
  if reset_after > 0 then units = 1 end
  free, next_after, reset_after, retry_after = capacity, 0, 0, 0
end
