#!lua flags=allow-oom
-- own_forget removes the mark of an id from all sets in which it may be. The touch stays:
-- what the inner store was asked for is asked there again. Where nobody holds the
-- partition the epoch is raised, so that an owner from before, whose filter still has the
-- id, writes nothing more.
--
-- KEYS     head, own, run, all fresh sets that are not folded, the buckets of the id
-- ARGV     1 the member done  2 the id (8 bytes)  3 the token (16 bytes) of the owner, when
--          it is who forgets, or ''  4 g and 5 the number of its newest fresh set, as they
--          were read  6 number of fresh sets; then for each set its generation
-- Returns  as own.lua says, where answer is one of
--          forgotten  done; the byte is 1 when there was a mark
--          in_flight  somebody holds the partition, and the id is begun in this epoch and
--                     has no mark; nothing was done. Not told to the owner, who knows.
--                     Sent again while the batch goes on, a forget may be told this too
--          stale      the newest fresh set is another: read head again; nothing was done
--          amnesia    there is no head; nothing was done

local member = ARGV[1]
local now = clock()
local h, bad = read(now)
if bad then
  return bad
end
h.newest = tonumber(redis.call('HGET', KEYS[1], 'new:' .. text(h.g)) or 0)
if h.g ~= tonumber(ARGV[4]) or h.newest ~= tonumber(ARGV[5]) then
  return answer('stale', now, h)
end

local marked = {}
for i = 4, #KEYS do
  if redis.call('SISMEMBER', KEYS[i], member) == 1 then
    marked[#marked + 1] = i
  end
end
local own = redis.call('GET', KEYS[2])
if own and #marked == 0 and own ~= ARGV[3] .. text(h.epoch) then
  local run = redis.call('HGETALL', KEYS[3])
  for f = 1, #run, 2 do
    if tonumber(string.match(run[f], '^%d+')) == h.epoch and has(string.sub(run[f + 1], 9), ARGV[2]) then
      return answer('in_flight', now, h)
    end
  end
end

local fresh = tonumber(ARGV[6])
for _, i in ipairs(marked) do
  redis.call('SREM', KEYS[i], member)
  redis.call('HINCRBY', KEYS[1], (i - 3 <= fresh and 'fresh:' or 'kept:') .. ARGV[3 + i], -1)
end
h.found = string.char(#marked > 0 and 1 or 0)
h.forgets = h.forgets + 1
if not own then
  h.epoch = later(h.epoch, now)
end
redis.call('HSET', KEYS[1], 'forgets', text(h.forgets), 'epoch', text(h.epoch))
return answer('forgotten', now, h)
