-- Self-test: runs each command that the script may need, on scratch keys. So a missing right, a server that
-- refuses to write, or one that is too old shows before a check depends on it.
--
-- KEYS     scratch keys. A single server gets two of different slots, which a node of a cluster refuses
-- ARGV     none but the operation
-- STATE    written, and deleted again
-- RETURNS  the reply of charges that spent nothing; if a command fails, an error with the code SELFTEST,
--          the name of the command, and the server's error
-- TTL      10 s, in case the command that deletes the key fails
if operation == 't' then
  local expiry = string.format('%d', (now - now % 1000) / 1000 + 10000)
  for _, key in ipairs(KEYS) do
    for _, command in ipairs({
      { 'GET', key },
      { 'SET', key, 'test', 'PXAT', expiry },
      { 'GETRANGE', key, '0', '4' },
      { 'SETRANGE', key, '0', 'test' },
      { 'PEXPIREAT', key, expiry },
      { 'PTTL', key },
      { 'DEL', key },
    }) do
      local result = redis.pcall(unpack(command))
      if type(result) == 'table' and result.err then
        return redis.error_reply('SELFTEST ' .. command[1] .. ' ' .. result.err)
      end
    end
  end
  return string.rep(struct.pack('<d', now) .. string.rep('\0', 64), #KEYS)
end
