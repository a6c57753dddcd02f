-- The overrides of a service, their audit log, and the instances that follow them.
--
-- KEYS[1]  a hash. A field that names a policy, or a policy and a key, is an override, as JSON. There are two
--          other fields:
--            :version  the version of the last change
--            :epoch    the version of the first change: another one after a loss of all data
-- KEYS[2]  a stream: the audit log
-- KEYS[3]  exists if this change was made: a change is sent again if its reply was lost
-- KEYS[4]  a sorted set: the instances, by the time of their last announcement in milliseconds
-- KEYS[5]  a hash: the announcement of each instance
-- KEYS[6]  the start of the names of hashes, one for each hour since the Unix epoch: the units that were "admitted" and
--          "denied" under each policy
-- ARGV[1]  poll | audit | instances | hours | change | note
-- ARGV[2]  the time to live of the overrides and the audit log in milliseconds. Each poll renews it when a tenth has
--          passed. The other two keys expire with the last announcement

local entries, audit, made, ttl = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[2])
local seen, announcements = KEYS[4], KEYS[5]
local version = redis.call('HGET', entries, ':version') or '0'

-- The time for which a change is known to be made, in milliseconds.
local MADE_TTL = 60000

-- Returns the time in microseconds.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Announces an instance, and removes those whose last announcement has expired, at most 100 of them. While Redis refuses
-- writes, it does nothing: overrides are read also then.
local function announce(now_millis, id, announcement, expiry, most)
    local ended = redis.pcall('ZRANGEBYSCORE', seen, '-inf', now_millis - expiry, 'LIMIT', 0, 100)
    if #ended > 0 then
        redis.pcall('ZREM', seen, unpack(ended))
        redis.pcall('HDEL', announcements, unpack(ended))
    end
    local count = redis.pcall('ZCARD', seen)
    if count == 0 then
        -- Redis may have evicted the set alone: announcements without a member would stay.
        redis.pcall('PEXPIRE', announcements, 0)
    end
    local has_room = type(count) == 'number' and count < most
    if has_room or type(redis.pcall('ZSCORE', seen, id)) == 'string' then
        redis.pcall('ZADD', seen, now_millis, id)
        redis.pcall('HSET', announcements, id, announcement)
        redis.pcall('PEXPIRE', seen, expiry)
        redis.pcall('PEXPIRE', announcements, expiry)
    end
end

-- Returns the number of the hour since the Unix epoch.
local function hour_of(now_millis)
    return math.floor(now_millis / 3600000)
end

-- Adds <policy> <admitted units> <denied units>.. to the sums of the hour, once for each call that is sent again.
local function count(now_millis, hours_ttl, first)
    if not ARGV[first] or redis.call('EXISTS', made) == 1 then
        return
    end
    local hour = KEYS[6] .. hour_of(now_millis)
    for i = first, #ARGV, 3 do
        redis.pcall('HINCRBY', hour, 'admitted:' .. ARGV[i], ARGV[i + 1])
        redis.pcall('HINCRBY', hour, 'denied:' .. ARGV[i], ARGV[i + 2])
    end
    redis.pcall('PEXPIRE', hour, hours_ttl)
    redis.pcall('SET', made, 1, 'PX', MADE_TTL)
end

-- poll <known version> <instance> <announcement> <its expiry in milliseconds> <maximum of instances> <time to live of an
-- hour> <policy> <admitted units> <denied units>.. : the time in microseconds, the version and the epoch, and all fields
-- if the version is another one. A process without a name is no instance. A Redis that refuses writes is still read, so the
-- writes of a poll are tried.
if ARGV[1] == 'poll' then
    if version ~= '0' and redis.call('PTTL', entries) < ttl * 0.9 then
        redis.call('PEXPIRE', entries, ttl)
        redis.call('PEXPIRE', audit, ttl)
    end
    local now = clock()
    local now_millis = math.floor(now / 1000)
    count(now_millis, ARGV[8], 9)
    if ARGV[4] ~= '' then
        announce(now_millis, ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
    end
    local epoch = redis.call('HGET', entries, ':epoch') or '0'
    local changed = version ~= ARGV[3] and redis.call('HGETALL', entries)
    return {now, version, epoch, changed}
end

-- instances <expiry> : the time in milliseconds, the instances with the time of their last announcement, and the
-- announcements
if ARGV[1] == 'instances' then
    local now_millis = math.floor(clock() / 1000)
    local last_seen = redis.call('ZRANGEBYSCORE', seen, now_millis - tonumber(ARGV[3]), '+inf', 'WITHSCORES')
    return {now_millis, last_seen, redis.call('HGETALL', announcements)}
end

-- hours <count> : the time in milliseconds, and so many hours with their counts
if ARGV[1] == 'hours' then
    local now_millis = math.floor(clock() / 1000)
    local last, hours = hour_of(now_millis), {}
    for hour = last - ARGV[3] + 1, last do
        local counts = redis.call('HGETALL', KEYS[6] .. hour)
        if #counts > 0 then
            hours[#hours + 1] = {hour, counts}
        end
    end
    return {now_millis, hours}
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
