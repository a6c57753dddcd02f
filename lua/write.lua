-- Writes the state of a charge: `written`, which the algorithm or block.lua has made.
--
-- KEYS     the key of the charge
-- ARGV[3]  with a time from a test, keys live for a day
-- STATE    a whole state if it `expires`, or the beginning of one
-- RETURNS  nothing
-- TTL      when the state expires, or the end of the key's block if it is later
if not answering then
  written = nil
elseif written and not expires then
  call('SETRANGE', key, offset, written)
elseif written then
  if block_header then
    written = string.sub(block_header, 1, 21) .. pack('<I7', expires) .. written
    local end_ = parse('<I7', written, 8)
    if expires < end_ then expires = end_ end
  end
  local option, time = 'PXAT', string.format('%d', (expires - expires % 1000) / 1000 + 1)
  if test_time then option, time = 'PX', '86400000' end
  if not is_prefix then
    call('SET', key, written, option, time)
  else
    if test_time then call('PEXPIRE', key, time) else call('PEXPIREAT', key, time) end
    call('SETRANGE', key, '0', written)
  end
end
