-- The overrides of a service, and their audit log.
--
-- KEYS[1]  a hash. A field that names a policy, or a policy and a key, is an override, as
--          `<version> <until or 0> <JSON>`. There are two other fields:
--            :version  the time of the last change in microseconds, or more
--            :epoch    the time of the first change in microseconds: another one after a loss of all data
-- KEYS[2]  a stream: the audit log
-- KEYS[3]  the reply to this change, if it was made: a change is sent again if its reply was lost
-- ARGV[1]  poll | set | remove | note
-- ARGV[2]  the time to live of both keys in milliseconds. Each poll renews it when a tenth has passed
-- ARGV[3]  the number of overrides that are kept
-- ARGV[4]  the number of entries of the audit log that are kept
-- Times come from the server. `until` is in milliseconds since the Unix epoch.

local entries, audit, ttl = KEYS[1], KEYS[2], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local version = tonumber(redis.call('HGET', entries, ':version') or 0)

local OTHER_FIELDS = 2
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

-- Returns all fields with their values, without the overrides that have ended, which it removes.
local function in_force()
    local all, left = redis.call('HGETALL', entries), {}
    for i = 1, #all, 2 do
        if string.find(all[i + 1], '^%d+ %d+ ') and not is_in_force(all[i + 1]) then
            -- Overrides are read also while Redis refuses writes.
            redis.pcall('HDEL', entries, all[i])
        else
            left[#left + 1], left[#left + 2] = all[i], all[i + 1]
        end
    end
    return left
end

-- Begins a new version. `value` is the new value of the field, or nil to remove it.
local function change(field, value)
    version = math.max(version + 1, now)
    if value then
        redis.call('HSET', entries, field, text(version) .. ' ' .. value)
    else
        redis.call('HDEL', entries, field)
    end
    redis.call('HSET', entries, ':version', text(version))
    redis.call('HSETNX', entries, ':epoch', text(now))
    redis.call('PEXPIRE', entries, ttl)
end

-- Adds an entry to the audit log. Its identifier is its time in microseconds. `changed` is the version of the
-- override that it is about.
local function note(entry, before, changed)
    local kind = ''
    if before then
        local is_json, decoded = pcall(cjson.decode, (string.gsub(before, '^%d+ %d+ ', '')))
        kind = is_json and decoded.kind or ''
        kind = type(kind) == 'table' and kind.quota or kind
    end
    local last = redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
    local id = last and math.max(now, tonumber(string.match(last[1], '^%d+')) + 1) or now
    redis.call('XADD', audit, 'MAXLEN', '~', ARGV[4], text(id) .. '-0', 'entry', entry, 'before', kind,
        'version', text(changed))
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

-- poll <known version> : the overrides if they have changed. Removes overrides that have ended.
if ARGV[1] == 'poll' then
    if version > 0 and redis.call('PTTL', entries) < ttl * 0.9 then
        redis.call('PEXPIRE', entries, ttl)
        redis.call('PEXPIRE', audit, ttl)
    end
    local changed = version ~= tonumber(ARGV[5]) and in_force()
    return {now, version, tonumber(redis.call('HGET', entries, ':epoch') or 0), changed}
end

-- note <audit entry>
if ARGV[1] == 'note' then
    note(ARGV[5], false, 0)
    return made('ok', 0, 0, false)
end

-- set    <audit entry> <field> <expected version or ''> <until or 0> <JSON>
-- remove <audit entry> <field> <expected version or ''>
local entry, field, expected, ends = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local previous, stored = version, redis.call('HGET', entries, field)
local before = stored and is_in_force(stored) and stored
local found = before and string.match(before, '^%d+') or '0'
if ARGV[1] == 'remove' and not before then
    return {'missing', 0, 0, false}
end
if expected ~= '' and expected ~= found then
    return {'conflict', tonumber(found), 0, false}
end
if ARGV[1] == 'remove' then
    change(field, nil)
else
    if ends ~= '0' and now >= tonumber(ends) * 1000 then
        return {'past', 0, 0, false}
    end
    if not stored and redis.call('HLEN', entries) - OTHER_FIELDS >= tonumber(ARGV[3])
        and #in_force() / 2 - OTHER_FIELDS >= tonumber(ARGV[3]) then
        return {'full', 0, 0, false}
    end
    change(field, ends .. ' ' .. ARGV[9])
end
note(entry, before, version)
return made('ok', version, previous, before)
