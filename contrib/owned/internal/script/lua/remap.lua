#!lua flags=allow-oom
-- remap tells a partition of its map, and for how long nobody may begin. It moves
-- both only forwards, by the clock of this server alone.
--
-- KEYS     head
-- ARGV     1 version of the map  2 ms to be shared from now  3 1 to make the head where
--          there is none, and, with ms to be shared, to take lost out  4 1 to write lost
-- Returns  as head.lua says, where answer is one of
--          mapped   done
--          amnesia  there is no head, and none was to be made; or it says lost, and that
--                   was to be taken out without ms to be shared; nothing was done

local mapver, span, bear = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local now = clock()
local h, bad = read(now, 'lost')
if bad then
  if not bear or bad[1] ~= 'amnesia' then
    return bad
  end
  -- The epoch is above all that were given out before everything was lost.
  h = {epoch = later(0, now), mapver = mapver, shared = 0, seq = 0, fence = 0, forgets = 0, g = 0, more = {0}}
  redis.call('HSET', KEYS[1], 'version', VERSION, 'epoch', text(h.epoch), 'since', text(h.epoch), 'seq', '0',
    'fence', '0', 'forgets', '0', 'g', '0', 'generation', '0')
end
if bear and h.more[1] == 1 then
  if span == 0 then
    return answer('amnesia', now, h)
  end
  -- The counts say what was there: what is left is less, and is not lost again.
  local counts = {'lost'}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.find(field, '^fresh:') or string.find(field, '^kept:') then
      counts[#counts + 1] = field
    end
  end
  redis.call('HDEL', KEYS[1], unpack(counts))
end
h.mapver = math.max(h.mapver, mapver)
if span > 0 then
  h.shared = math.max(h.shared, now + span)
end
redis.call('HSET', KEYS[1], 'mapver', text(h.mapver), 'shared', text(h.shared))
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'lost', '1')
end
return answer('mapped', now, h)
