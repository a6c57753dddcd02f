  -- Sliding log: every charge with its time. The rest is in ring.lua.
  if algorithm == 1 and units > 0 then
    -- As ring.lua has seen it in the look before.
    stamp = saved and saved[line][18] or seen
  end
