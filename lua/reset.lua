  -- Reset: forgets a key, if its value is one that this script may have written.
  if op == 'r' then
    if looking then
      call('GETRANGE', key, '0', '0')
      s.free = s.algorithm == 4 and s.parameter or s.limit
    else
      call('DEL', key)
    end
