-- The overrides of a service, and their audit log.
--
-- KEYS[1]  a hash: an override for each field with a colon, as `<version> <until or 0> <JSON>`, and four fields
--            version     the time of the last change in microseconds, or more
--            history     the last versions, each followed by a space
--            base        every version up to this one is in the history too
--            generation  the time at which lost overrides were put back
-- KEYS[2]  a stream: the audit log
-- ARGV[1]  poll | set | remove | note | restore
-- ARGV[2]  the time to live of both keys in milliseconds. Each poll renews it when a tenth has passed,
--          unless it is 0.
-- ARGV[3]  the number of overrides, or of entries of the audit log, that are kept
--
-- Times are those of the server. `until` is in milliseconds since the Unix epoch.

local entries, audit, ttl = KEYS[1], KEYS[2], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = tonumber(redis.call('HGET', entries, 'version') or 0)

-- Lua writes large numbers as 1.7e+15.
local function text(number)
    return string.format('%.0f', number)
end

local function is_in_force(value)
    local ends = tonumber(string.match(value, '^%d+ (%d+) ') or 1)
    return ends == 0 or now < ends * 1000
end

-- Returns whether the overrides of this version have become the present ones by the changes since then.
local function is_in_history(known)
    local fields = redis.call('HMGET', entries, 'base', 'history')
    local is_listed = string.find(' ' .. (fields[2] or ''), ' ' .. text(known) .. ' ', 1, true)
    return known <= tonumber(fields[1] or 0) or is_listed ~= nil
end

-- Begins a new version.
local function change()
    version = math.max(version + 1, now)
    local history = (redis.call('HGET', entries, 'history') or '') .. text(version) .. ' '
    if #history > 2000 then
        local first = string.match(history, '^%d+ ')
        history = string.sub(history, #first + 1)
        local base = tonumber(redis.call('HGET', entries, 'base') or 0)
        redis.call('HSET', entries, 'base', text(math.max(base, tonumber(first))))
    end
    redis.call('HSET', entries, 'version', text(version), 'history', history)
    redis.call('HSETNX', entries, 'base', '0')
    redis.call('HSETNX', entries, 'generation', '0')
    redis.call('PEXPIRE', entries, ttl)
end

-- Adds an entry to the audit log. Its identifier is its time in microseconds.
local function note(entry, before, max)
    local kind = ''
    if before then
        local is_json, decoded = pcall(cjson.decode, (string.gsub(before, '^%d+ %d+ ', '')))
        kind = is_json and decoded.kind or ''
        kind = type(kind) == 'table' and kind.quota or kind
    end
    local last = redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
    local id = last and math.max(now, tonumber(string.match(last[1], '^%d+')) + 1) or now
    redis.call('XADD', audit, 'MAXLEN', '~', max, text(id) .. '-0', 'entry', entry, 'before', kind)
    redis.call('PEXPIRE', audit, ttl)
end

-- poll <known version> [<field> <version>].. : the overrides if they have changed. Removes the ones that
-- have ended, which the caller names.
if ARGV[1] == 'poll' then
    local known = tonumber(ARGV[4])
    for i = 5, #ARGV - 1, 2 do
        local value = redis.call('HGET', entries, ARGV[i])
        if value and string.match(value, '^%d+') == ARGV[i + 1] and not is_in_force(value) then
            redis.call('HDEL', entries, ARGV[i])
        end
    end
    if version > 0 and ttl > 0 and redis.call('PTTL', entries) < ttl * 0.9 then
        redis.call('PEXPIRE', entries, ttl)
        redis.call('PEXPIRE', audit, ttl)
    end
    local generation = tonumber(redis.call('HGET', entries, 'generation') or 0)
    local is_known = known == 0 or version == known or (version > known and is_in_history(known))
    local changed = version ~= known and redis.call('HGETALL', entries)
    return {now, version, generation, is_known and 1 or 0, changed}
end

-- set <max audit> <field> <until or 0> <JSON> <expected version or ''> <audit entry>
-- remove <max audit> <field> <audit entry>
if ARGV[1] == 'set' or ARGV[1] == 'remove' then
    local field, previous = ARGV[5], version
    local before = redis.call('HGET', entries, field)
    local is_new = not before
    if before and not is_in_force(before) then
        before = false
    end
    if ARGV[1] == 'remove' then
        if not before then
            return {'missing', 0, 0, false}
        end
        redis.call('HDEL', entries, field)
        change()
        note(ARGV[6], before, ARGV[4])
        return {'ok', version, previous, before}
    end
    local found = before and string.match(before, '^%d+') or '0'
    if ARGV[8] ~= '' and ARGV[8] ~= found then
        return {'conflict', tonumber(found), 0, false}
    end
    if ARGV[6] ~= '0' and now >= tonumber(ARGV[6]) * 1000 then
        return {'past', 0, 0, false}
    end
    -- Four fields are no overrides.
    if is_new and redis.call('HLEN', entries) - 4 >= tonumber(ARGV[3]) then
        return {'full', 0, 0, false}
    end
    change()
    redis.call('HSET', entries, field, text(version) .. ' ' .. ARGV[6] .. ' ' .. ARGV[7])
    note(ARGV[9], before, ARGV[4])
    return {'ok', version, previous, before}
end

-- note <audit entry>
if ARGV[1] == 'note' then
    note(ARGV[4], false, ARGV[3])
    return {'ok', 0, 0, false}
end

-- restore <max audit> <known version> <audit entry> [<field> <value>]..: puts back what the caller knows and
-- the store has lost. The first of several callers does it.
local known, put = tonumber(ARGV[5]), 0
if version == known or (version > known and is_in_history(known)) then
    return {'ok', 0, 0, false}
end
local has_all = version < known
if has_all then
    -- Nothing was set since the loss.
    redis.call('DEL', entries)
end
for i = 7, #ARGV - 1, 2 do
    if put < tonumber(ARGV[3]) and is_in_force(ARGV[i + 1]) then
        put = put + redis.call('HSETNX', entries, ARGV[i], ARGV[i + 1])
    end
end
if has_all then
    redis.call('HSET', entries, 'version', text(known), 'history', '', 'base', text(known))
    redis.call('PEXPIRE', entries, ttl)
else
    local base = tonumber(redis.call('HGET', entries, 'base') or 0)
    redis.call('HSET', entries, 'base', text(math.max(base, known)))
    change()
end
redis.call('HSET', entries, 'generation', text(now))
note(ARGV[6], false, ARGV[4])
return {'restored', put, 0, false}
