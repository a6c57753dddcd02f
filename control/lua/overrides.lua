-- The overrides of a service, and their audit log.
--
-- KEYS[1]  a hash. A field that names a policy, or a policy and a key, is an override, as JSON. There are two
--          other fields:
--            :version  the version of the last change
--            :epoch    the version of the first change: another one after a loss of all data
-- KEYS[2]  a stream: the audit log
-- KEYS[3]  exists if this change was made: a change is sent again if its reply was lost
-- ARGV[1]  poll | audit | change | note
-- ARGV[2]  the time to live of the hash and the stream in milliseconds. Each poll renews it when a tenth has
--          passed

local entries, audit, made, ttl = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[2])
local version = redis.call('HGET', entries, ':version') or '0'

-- The time for which a change is known to be made, in milliseconds.
local MADE_TTL = 60000

-- poll <known version> : the time in microseconds, the version and the epoch, and all fields if the version is
-- another one
if ARGV[1] == 'poll' then
    if version ~= '0' and redis.call('PTTL', entries) < ttl * 0.9 then
        redis.call('PEXPIRE', entries, ttl)
        redis.call('PEXPIRE', audit, ttl)
    end
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local epoch = redis.call('HGET', entries, ':epoch') or '0'
    local changed = version ~= ARGV[3] and redis.call('HGETALL', entries)
    return {now, version, epoch, changed}
end

-- audit <count> : the newest entries
if ARGV[1] == 'audit' then
    return redis.call('XREVRANGE', audit, '+', '-', 'COUNT', ARGV[3])
end

if redis.call('EXISTS', made) == 1 then
    return 1
end

-- change <maximum of audit entries> <audit entry> <known version> <new version> <field> <JSON> <field to remove>.. :
-- 0 if the version is another one. Without JSON, it only removes.
if ARGV[1] == 'change' then
    if version ~= ARGV[5] then
        return 0
    end
    redis.call('HSET', entries, ':version', ARGV[6])
    redis.call('HSETNX', entries, ':epoch', ARGV[6])
    for i = 9, #ARGV do
        redis.call('HDEL', entries, ARGV[i])
    end
    if ARGV[8] ~= '' then
        redis.call('HSET', entries, ARGV[7], ARGV[8])
    end
    redis.call('PEXPIRE', entries, ttl)
end

-- note <maximum of audit entries> <audit entry>
redis.call('XADD', audit, 'MAXLEN', '~', ARGV[3], '*', 'entry', ARGV[4])
redis.call('PEXPIRE', audit, ttl)
redis.call('SET', made, 1, 'PX', MADE_TTL)
return 1
