#!lua flags=allow-oom
-- fold adds members of the oldest fresh set of a generation to their buckets, and with
-- the last of them removes the set. A set is read, folded by as many calls as it takes, and
-- only then removed: until then its members are in both, which hurts nobody. A call that
-- comes again finds its members at the end of their buckets, and adds none. Where the set
-- was read anew some may be in a bucket twice, and count twice.
--
-- KEYS     head, fresh set, buckets
-- ARGV     1 epoch  2 forgets, as it was before the set was read  3 length of a generation
--          in ms  4 keep in ms  5 generation and 6 number of the set
--          7 number of its members  8 1 for the last call; then for each bucket its
--          members, of 8 bytes each
-- Returns  as head.lua says, where answer is the first of
--          amnesia  there is no head; nothing was done
--          stale    the epoch is another; nothing was done
--          folded   all was done; or the set was folded before, or its generation is over:
--                   nothing is left to do
--          forgot   something was forgotten since: read the set again; nothing was done
--          grown    the set has another number of members: read it again; nothing was done

local g, n, slice = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[3])
local now = clock()
local h, bad = read(now, 'new:' .. g, 'fold:' .. g, 'fresh:' .. g, 'kept:' .. g)
if bad then
  return bad
end
h.newest = h.more[1]
if h.epoch ~= tonumber(ARGV[1]) then
  return answer('stale', now, h)
end
if n <= h.more[2] or n > h.newest then
  return answer('folded', now, h)
end
if n ~= h.more[2] + 1 then
  return redis.error_reply('ERR an older fresh set is not folded')
end
if h.forgets ~= tonumber(ARGV[2]) then
  return answer('forgot', now, h)
end
local count = redis.call('SCARD', KEYS[2])
if count ~= tonumber(ARGV[7]) then
  return answer('grown', now, h)
end

local ends, added = text((tonumber(g) + 3) * slice + tonumber(ARGV[4])), 0
for i = 3, #KEYS do
  local members = ARGV[6 + i]
  if redis.call('GETRANGE', KEYS[i], -#members, -1) ~= members then
    if redis.call('APPEND', KEYS[i], members) == #members then
      redis.call('PEXPIREAT', KEYS[i], ends)
    end
    added = added + #members / 8
  end
end
local set = {'kept:' .. g, text(h.more[4] + added)}
if ARGV[8] == '1' then
  redis.call('UNLINK', KEYS[2])
  set[3], set[4], set[5], set[6] = 'fold:' .. g, text(n), 'fresh:' .. g, text(h.more[3] - count)
end
redis.call('HSET', KEYS[1], unpack(set))
return answer('folded', now, h)
