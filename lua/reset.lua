  -- Reset: forgets a key. What it holds was looked at by its algorithm, as for every other call.
  if op == 'r' and not looking then
    call('DEL', key)
    free = algorithm == 4 and parameter or limit
