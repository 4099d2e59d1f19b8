#!lua flags=allow-oom
-- batch is what the owner of a partition does: marks and touches of ids, batches that
-- ended and batches that begin, and with or without them the renewal of the lease. It
-- comes a second time without harm; one that comes late finds another epoch, or can only
-- bring back a begin that has ended.
--
-- KEYS     head, own, run, and with marks or touches the fresh set
-- ARGV     1 token (16 bytes)  2 epoch  3 version of the map  4 lease in ms
--          5 the largest seq that the owner was answered
--          6 length of a generation in ms  7 keep in ms
--          8 generation and 9 number of the fresh set
--          10 marks and 11 touches, of 8 bytes each  12 number of begins; then for each
--          begin its field and ids, and the fields that ended
-- Returns  as head.lua says, where answer is the first of
--          amnesia  there is no head; nothing was done
--          stale    the epoch is another, or another holds the partition; nothing was done
--          edge     marks or touches, and g is another by this server's clock (it is in
--                   the answer), or the set was folded; nothing was done
--          lapsed   the lease ran out, and nobody came: no begin was written and no touch,
--                   and the lease is not renewed; the rest was done
--          behind   seq is lower than the owner's: the server has lost batch writes. No begin was
--                   written, and seq stays; the rest was done
--          shared   nobody may begin yet, or the map has another version: no begin was
--                   written; the rest was done
--          done     all was done

local epoch, lease, g = tonumber(ARGV[2]), ARGV[4], ARGV[8]
local slice, marks, touches = tonumber(ARGV[6]), ARGV[10], ARGV[11]
local now = clock()
local h, bad = read(now, 'new:' .. g, 'fold:' .. g, 'fresh:' .. g)
if bad then
  return bad
end
local own = redis.call('GET', KEYS[2])
if h.epoch ~= epoch or own and own ~= ARGV[1] .. ARGV[2] then
  return answer('stale', now, h)
end

local n, set = tonumber(ARGV[9]), {}
local gone = 13 + 2 * tonumber(ARGV[12]) -- the first of the fields that ended
local current = math.max(math.floor(now / slice), h.g)
h.newest = h.more[1]
if #marks + #touches > 0 and (tonumber(g) ~= current or n <= h.more[2]) then
  h.g = current
  return answer('edge', now, h)
end

local word = 'done'
if not own then
  word = 'lapsed'
elseif h.seq < tonumber(ARGV[5]) then
  word = 'behind'
elseif h.shared > now or h.mapver ~= tonumber(ARGV[3]) then
  word = 'shared'
end

local members = cut(own and marks .. touches or marks)
if #members > 0 then
  local added = 0
  for i = 1, #members, chunk do
    added = added + redis.call('SADD', KEYS[4], unpack(members, i, math.min(i + chunk - 1, #members)))
  end
  -- Every time: a set that a forget has emptied is gone, and its end with it.
  redis.call('PEXPIREAT', KEYS[4], text((current + 3) * slice + tonumber(ARGV[7])))
  if added > 0 then
    set[#set + 1], set[#set + 2] = 'fresh:' .. g, text(h.more[3] + added)
  end
  if n > h.newest then
    h.newest = n
    set[#set + 1], set[#set + 2] = 'new:' .. g, text(n)
  end
end
for i = gone, #ARGV, chunk do
  redis.call('HDEL', KEYS[3], unpack(ARGV, i, math.min(i + chunk - 1, #ARGV)))
end
if word == 'done' then
  local at = stamp(now)
  for i = 13, gone - 2, 2 do
    if redis.call('HSETNX', KEYS[3], ARGV[i], at .. ARGV[i + 1]) == 0
      and string.sub(redis.call('HGET', KEYS[3], ARGV[i]), 9) ~= ARGV[i + 1] then
      return redis.error_reply('ERR a begin has the name of another one')
    end
  end
end
if own then
  redis.call('PEXPIRE', KEYS[2], lease)
end

if current > h.g then
  -- What head says of generations that are over goes with the first batch write of a new one.
  local over = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local of = string.match(field, ':(%d+)$')
    if of and (tonumber(of) + 3) * slice + tonumber(ARGV[7]) <= now then
      over[#over + 1] = field
    end
  end
  if #over > 0 then
    redis.call('HDEL', KEYS[1], unpack(over))
  end
  h.g = current
  set[#set + 1], set[#set + 2] = 'g', text(current)
end
if word ~= 'behind' then
  h.seq = h.seq + 1
end
h.fence = later(h.fence, now)
redis.call('HSET', KEYS[1], 'seq', text(h.seq), 'fence', text(h.fence), unpack(set))
return answer(word, now, h)
