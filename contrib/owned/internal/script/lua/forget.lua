#!lua flags=allow-oom
-- forget removes the mark of an id from all sets in which it may be, and the id from
-- what was begun by owners who are gone. The touch stays: what the inner store was asked
-- for is asked there again. Where nobody holds the
-- partition the epoch is raised, so that an owner from before, whose filter still has the
-- id, writes nothing more.
--
-- KEYS     head, own, run, all fresh sets that are not folded, the buckets of the id
-- ARGV     1 the member done, which is the id (8 bytes)  2 the token (16 bytes) of the
--          owner, when it is who forgets, or ''  3 g and 4 the number of its newest fresh
--          set, as they were read  5 number of fresh sets; then for each set its generation
-- Returns  as head.lua says, where answer is one of
--          forgotten  done; the byte is 1 when there was a mark
--          in_flight  somebody holds the partition, and the id is begun in an epoch from
--                     since on and has no mark; nothing was done. Not told to the owner, who knows.
--                     Sent again while the batch goes on, a forget may be told this too
--          stale      the newest fresh set is another: read head again; nothing was done
--          amnesia    there is no head; nothing was done

local member = ARGV[1]
local now = clock()
local h, bad = read(now, 'since')
if bad then
  return bad
end
h.newest = tonumber(redis.call('HGET', KEYS[1], 'new:' .. text(h.g)) or 0)
if h.g ~= tonumber(ARGV[3]) or h.newest ~= tonumber(ARGV[4]) then
  return answer('stale', now, h)
end

-- out returns a list of ids without one, and how often it was there.
local function out(ids, id)
  local n, at = 0, string.find(ids, id, 1, true)
  while at do
    if at % 8 == 1 then
      ids, n = sub(ids, 1, at - 1) .. sub(ids, at + 8), n + 1
    else
      at = at + 1
    end
    at = string.find(ids, id, at, true)
  end
  return ids, n
end

local fresh, marked, left = tonumber(ARGV[5]), {}, {}
for i = 4, #KEYS do
  local n = 0
  if i - 3 <= fresh then
    n = redis.call('SISMEMBER', KEYS[i], member)
  else
    left[i], n = out(redis.call('GET', KEYS[i]) or '', member)
  end
  if n > 0 then
    marked[#marked + 1] = {i, n}
  end
end
local own = redis.call('GET', KEYS[2])
local run, dead = redis.call('HGETALL', KEYS[3]), {}
for f = 1, #run, 2 do
  if has(sub(run[f + 1], 9), member) then
    if not own or began(run[f]) < h.more[1] then
      dead[#dead + 1] = f
    elseif #marked == 0 and own ~= ARGV[2] .. text(h.epoch) then
      return answer('in_flight', now, h)
    end
  end
end

for _, f in ipairs(dead) do
  local ids = out(sub(run[f + 1], 9), member)
  if ids == '' then
    redis.call('HDEL', KEYS[3], run[f])
  else
    redis.call('HSET', KEYS[3], run[f], sub(run[f + 1], 1, 8) .. ids)
  end
end

for _, m in ipairs(marked) do
  local i = m[1]
  if not left[i] then
    redis.call('SREM', KEYS[i], member)
  elseif left[i] == '' then
    redis.call('DEL', KEYS[i])
  else
    redis.call('SET', KEYS[i], left[i], 'KEEPTTL')
  end
  redis.call('HINCRBY', KEYS[1], (left[i] and 'kept:' or 'fresh:') .. ARGV[2 + i], -m[2])
end
h.found = string.char(#marked > 0 and 1 or 0)
h.forgets = h.forgets + 1
if not own then
  h.epoch = later(h.epoch, now)
end
redis.call('HSET', KEYS[1], 'forgets', text(h.forgets), 'epoch', text(h.epoch))
return answer('forgotten', now, h)
