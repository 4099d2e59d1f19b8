#!lua flags=allow-oom
-- release gives a partition up. The epoch stays, and the next owner raises it.
--
-- KEYS     head, own, run
-- ARGV     1 token (16 bytes)  2 epoch; then the fields of run that ended
-- Returns  as head.lua says, where answer is one of
--          released  nobody holds it; also when the lease had run out, or it was released
--                    before
--          stale     the epoch is another, or another holds it; nothing was done
--          amnesia   there is no head; nothing was done

local now = clock()
local h, bad = read(now)
if bad then
  return bad
end
local own = redis.call('GET', KEYS[2])
if h.epoch ~= tonumber(ARGV[2]) or own and own ~= ARGV[1] .. ARGV[2] then
  return answer('stale', now, h)
end
for i = 3, #ARGV, chunk do
  redis.call('HDEL', KEYS[3], unpack(ARGV, i, math.min(i + chunk - 1, #ARGV)))
end
redis.call('DEL', KEYS[2])
h.seq = h.seq + 1
redis.call('HSET', KEYS[1], 'seq', text(h.seq))
return answer('released', now, h)
