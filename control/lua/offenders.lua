-- The keys that are limited now, as each process of a service reports them.
--
-- KEYS[1]  a hash: the last report of each process
-- KEYS[2]  a sorted set: the times of these reports in milliseconds
-- ARGV[1]  how long a report counts, in milliseconds
-- ARGV[2]  the number of reports that are kept
-- ARGV[3]  the process, or '' to report nothing
-- ARGV[4]  its report
--
-- RETURNS  all processes and reports that count, if ARGV[3] is '': such a call only reads

local reports, times, lasts = KEYS[1], KEYS[2], tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', times, '-inf', now - lasts)
if ARGV[3] == '' then
    local is_ended, counted = {}, {}
    for _, process in ipairs(ended) do
        is_ended[process] = true
    end
    local all = redis.call('HGETALL', reports)
    for i = 1, #all, 2 do
        if not is_ended[all[i]] then
            counted[#counted + 1], counted[#counted + 2] = all[i], all[i + 1]
        end
    end
    return counted
end
for _, process in ipairs(ended) do
    redis.call('HDEL', reports, process)
    redis.call('ZREM', times, process)
end
local is_new = redis.call('HEXISTS', reports, ARGV[3]) == 0
if not is_new or redis.call('HLEN', reports) < tonumber(ARGV[2]) then
    redis.call('HSET', reports, ARGV[3], ARGV[4])
    redis.call('ZADD', times, now, ARGV[3])
    redis.call('PEXPIRE', reports, lasts)
    redis.call('PEXPIRE', times, lasts)
end
return {}
