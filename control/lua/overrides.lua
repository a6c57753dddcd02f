-- The overrides of a service, and their audit log.
--
-- KEYS[1]  a hash. A field with a colon is an override, as `<version> <until or 0> <JSON>`, or the mark of a
--          removed one, as `<version> <until> -`. There are six other fields:
--            version     the time of the last change in microseconds, or more
--            history     the last versions, each followed by a space
--            base        every version up to this one is in the history too
--            generation  the time at which lost overrides were put back
--            marks       the number of marks
--            read        the last version that an instance of the service has read
-- KEYS[2]  a stream: the audit log
-- KEYS[3]  the reply to this change, if it was made: a change is sent again if its reply was lost
-- ARGV[1]  poll | set | remove | note | restore
-- ARGV[2]  the time to live of both keys in milliseconds. Each poll renews it when a tenth has passed,
--          unless it is 0.
-- ARGV[3]  the number of overrides, and of marks, or of entries of the audit log, that are kept
--
-- Times are those of the server. `until` is in milliseconds since the Unix epoch.

local entries, audit, ttl = KEYS[1], KEYS[2], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = tonumber(redis.call('HGET', entries, 'version') or 0)
local marks = tonumber(redis.call('HGET', entries, 'marks') or 0)

-- The time for which a removal is known: 7 days, in milliseconds.
local MARK_TTL = 604800000
local OTHER_FIELDS = 6
-- The time for which the reply to a change is known, in milliseconds.
local REPLY_TTL = 60000

-- Lua writes large numbers as 1.7e+15.
local function text(number)
    return string.format('%.0f', number)
end

local function is_in_force(value)
    local ends = tonumber(string.match(value, '^%d+ (%d+) ') or 1)
    return ends == 0 or now < ends * 1000
end

local function version_of(value)
    return tonumber(string.match(value or '', '^(%d+) ') or 0)
end

local function is_mark(value)
    return value and string.match(value, '^%d+ %d+ %-$') ~= nil
end

-- Replaces the value of a field, or deletes the field.
local function put(field, before, value)
    local more = (is_mark(value) and 1 or 0) - (is_mark(before) and 1 or 0)
    if value then
        redis.call('HSET', entries, field, value)
    else
        redis.call('HDEL', entries, field)
    end
    if more ~= 0 then
        marks = marks + more
        redis.call('HSET', entries, 'marks', text(marks))
    end
end

-- Returns whether the overrides of this version have become the present ones by the changes since then.
local function is_in_history(known)
    local fields = redis.call('HMGET', entries, 'base', 'history')
    local is_listed = string.find(' ' .. (fields[2] or ''), ' ' .. text(known) .. ' ', 1, true)
    return known <= tonumber(fields[1] or 0) or is_listed ~= nil
end

-- Begins a new version, above the one that the caller knows.
local function change(known)
    version = math.max(version + 1, known + 1, now)
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
    redis.call('HSETNX', entries, 'marks', '0')
    redis.call('HSETNX', entries, 'read', '0')
    redis.call('PEXPIRE', entries, ttl)
end

-- Adds an entry to the audit log. Its identifier is its time in microseconds. `changed` is the version of the
-- override that it is about.
local function note(entry, before, max, changed)
    local kind = ''
    if before then
        local is_json, decoded = pcall(cjson.decode, (string.gsub(before, '^%d+ %d+ ', '')))
        kind = is_json and decoded.kind or ''
        kind = type(kind) == 'table' and kind.quota or kind
    end
    local last = redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
    local id = last and math.max(now, tonumber(string.match(last[1], '^%d+')) + 1) or now
    redis.call('XADD', audit, 'MAXLEN', '~', max, text(id) .. '-0', 'entry', entry, 'before', kind,
        'version', text(changed or 0))
    redis.call('PEXPIRE', audit, ttl)
end

-- Returns the reply to a change that is made, and keeps it.
local function made(...)
    local reply = {...}
    redis.call('SET', KEYS[3], cmsgpack.pack(reply), 'PX', REPLY_TTL)
    return reply
end

local earlier = KEYS[3] and redis.call('GET', KEYS[3])
if earlier then
    return cmsgpack.unpack(earlier)
end

-- poll <known version> [<field> <version>].. : the overrides if they have changed. Removes the ones that
-- have ended, which the caller names.
if ARGV[1] == 'poll' then
    local known = tonumber(ARGV[4])
    for i = 5, #ARGV - 1, 2 do
        local value = redis.call('HGET', entries, ARGV[i])
        if value and string.match(value, '^%d+') == ARGV[i + 1] and not is_in_force(value) then
            put(ARGV[i], value, false)
        end
    end
    if version > 0 and ttl > 0 and redis.call('PTTL', entries) < ttl * 0.9 then
        redis.call('PEXPIRE', entries, ttl)
        redis.call('PEXPIRE', audit, ttl)
    end
    local generation = tonumber(redis.call('HGET', entries, 'generation') or 0)
    local is_known = known == 0 or version == known or (version > known and is_in_history(known))
    local changed = version ~= known and redis.call('HGETALL', entries)
    if changed and version > 0 and ttl > 0 then
        -- Overrides are read also while Redis refuses writes, such as without memory.
        redis.pcall('HSET', entries, 'read', text(version))
    end
    return {now, version, generation, is_known and 1 or 0, changed}
end

-- set <max audit> <known version> <field> <until or 0> <JSON> <expected version or ''> <audit entry>
-- remove <max audit> <known version> <field> <expected version or ''> <audit entry>
if ARGV[1] == 'set' or ARGV[1] == 'remove' then
    local field, previous = ARGV[6], version
    local stored = redis.call('HGET', entries, field)
    local is_new = not stored or is_mark(stored)
    local before = not is_new and is_in_force(stored) and stored
    local found = before and string.match(before, '^%d+') or '0'
    local expected = ARGV[1] == 'remove' and ARGV[7] or ARGV[9]
    if ARGV[1] == 'remove' and not before then
        return {'missing', 0, 0, false}
    end
    if expected ~= '' and expected ~= found then
        return {'conflict', tonumber(found), 0, false}
    end
    if ARGV[1] == 'remove' then
        change(tonumber(ARGV[5]))
        local until_millis = math.floor(version / 1000) + MARK_TTL
        local mark = marks < tonumber(ARGV[3]) and text(version) .. ' ' .. text(until_millis) .. ' -'
        put(field, stored, mark)
        note(ARGV[8], before, ARGV[4], version)
        return made('ok', version, previous, before)
    end
    if ARGV[7] ~= '0' and now >= tonumber(ARGV[7]) * 1000 then
        return {'past', 0, 0, false}
    end
    local live = redis.call('HLEN', entries) - OTHER_FIELDS - marks
    if is_new and live >= tonumber(ARGV[3]) then
        return {'full', 0, 0, false}
    end
    change(tonumber(ARGV[5]))
    put(field, stored, text(version) .. ' ' .. ARGV[7] .. ' ' .. ARGV[8])
    note(ARGV[10], before, ARGV[4], version)
    return made('ok', version, previous, before)
end

-- note <audit entry>
if ARGV[1] == 'note' then
    note(ARGV[4], false, ARGV[3])
    return made('ok', 0, 0, false)
end

-- restore <max audit> <known version> <audit entry> [<field> <value>].. : adds what the caller knows and the
-- store has lost. Of two values of a field, the one of the larger version stays. Returns the number of
-- overrides that were put back, and that of those for which the caller and the store do not agree.
local known, max = tonumber(ARGV[5]), tonumber(ARGV[3])
if version == known or (version > known and is_in_history(known)) then
    return {'ok', 0, 0, false}
end
change(known)
local live = redis.call('HLEN', entries) - OTHER_FIELDS - marks
local restored, undecided, is_named = 0, 0, {}
for i = 7, #ARGV - 1, 2 do
    local field, value = ARGV[i], ARGV[i + 1]
    local stored = redis.call('HGET', entries, field)
    local more = (is_mark(value) and 0 or 1) - ((not stored or is_mark(stored)) and 0 or 1)
    is_named[field] = true
    if is_in_force(value) and version_of(value) > version_of(stored) then
        if more > 0 and live >= max then
            undecided = undecided + 1
        elseif not is_mark(value) or stored or marks < max then
            put(field, stored, value)
            live = live + more
            restored = restored + (is_mark(value) and 0 or 1)
        end
    end
end
-- An override that the caller should know, and does not: its removal was lost or is too long ago, or it was
-- set since the loss by a clock that was set back. It stays.
local all = redis.call('HGETALL', entries)
for i = 1, #all, 2 do
    local value = all[i + 1]
    local is_foreign = string.find(all[i], ':', 1, true) and not is_named[all[i]]
    if is_foreign and not is_mark(value) and is_in_force(value) then
        local set_at = version_of(value)
        undecided = undecided + ((set_at > 0 and set_at <= known) and 1 or 0)
    end
end
local base = tonumber(redis.call('HGET', entries, 'base') or 0)
redis.call('HSET', entries, 'base', text(math.max(base, known)), 'generation', text(now))
note(ARGV[6], false, ARGV[4])
return made('restored', restored, undecided, false)
