-- Reset: forgets a key. Its algorithm has viewed it, so a foreign value is not deleted.
--
-- KEYS     the key of the charge
-- ARGV     none
-- STATE    deleted
-- RETURNS  the standing of an untouched key
-- TTL      none
if operation == 'r' and answering then
  call('DEL', key)
  written = nil
  free, next_after, reset_after, retry_after = capacity, 0, 0, 0
end
