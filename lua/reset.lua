  -- Reset: forgets a key, if its value is one that this script may have written.
  if op == 'r' then
    free = algorithm == 4 and parameter or limit
    if looking then
      call('GETRANGE', key, '0', '0')
      if saved then saved[line] = { free } end
    else
      call('DEL', key)
    end
