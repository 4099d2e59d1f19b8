#!lua flags=allow-oom
-- acquire gives a partition to one owner, in a new epoch.
--
-- KEYS     head, own, run
-- ARGV     1 token (16 bytes)  2 lease in ms  3 hold in ms: begins that are older, and of
--          another ownership, are dropped  4 generation of the consumer group, or 0  5 1 to take the partition
--          from an owner of a lower generation, above 0  6 version of the map
--          7 the epoch that the caller had, when he goes on with what he began in it, or 0:
--          where head still has it, since stays; otherwise it is the new epoch
-- Returns  as head.lua says, where answer is one of
--          acquired  the epoch is a new one
--          mine      the token has the partition already: the lease was renewed, and the
--                    epoch before is not told
--          held      somebody else has it; nothing was done
--          remapped  the map has another version: read it again; nothing was done
--          amnesia   there is no head, or it says lost; nothing was done

local token, lease, hold, generation = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = clock()
local h, bad = read(now, 'generation', 'lost', 'since')
if bad then
  return bad
end
if h.more[2] == 1 then
  return answer('amnesia', now, h)
end
if h.mapver ~= tonumber(ARGV[6]) then
  return answer('remapped', now, h)
end
h.newest = tonumber(redis.call('HGET', KEYS[1], 'new:' .. text(h.g)) or 0)

local own = redis.call('GET', KEYS[2])
if own == token .. text(h.epoch) then
  redis.call('PEXPIRE', KEYS[2], lease)
  h.seq = h.seq + 1
  redis.call('HSET', KEYS[1], 'seq', text(h.seq), 'generation', text(math.max(generation, h.more[1])))
  return answer('mine', now, h)
end
if own and not (ARGV[5] == '1' and h.more[1] > 0 and h.more[1] < generation) then
  h.left = math.max(redis.call('PTTL', KEYS[2]), 0)
  return answer('held', now, h)
end

local since = h.more[3]
h.before, h.epoch, h.seq = h.epoch, later(h.epoch, now), h.seq + 1
if h.before ~= tonumber(ARGV[7]) then
  since = h.epoch
end
local run = redis.call('HGETALL', KEYS[3])
for i = 1, #run, 2 do
  if began(run[i]) < since and time(run[i + 1]) + hold <= now then
    redis.call('HDEL', KEYS[3], run[i])
  end
end
redis.call('HSET', KEYS[1], 'epoch', text(h.epoch), 'since', text(since), 'seq', text(h.seq),
  'generation', text(generation))
redis.call('SET', KEYS[2], token .. text(h.epoch), 'PX', lease)
return answer('acquired', now, h)
