#!lua flags=allow-oom
-- forget makes a key claimable from attempt 1. What it leaves behind keeps the fence, so
-- that an owner from before writes nothing, and the next claim's fence is larger.
--
-- KEYS[1]  the record; buckets may follow, see bucket.lua, and the index, see index.lua
-- ARGV     1 ms to keep the fence  2 arguments of the buckets
--          6 a fence that none of a member is larger than, by the clock furthest ahead
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          forgotten, in_flight (nothing was changed), unreadable, edge

local keep = tonumber(ARGV[1])
local old, bad = read(KEYS[1])
if bad then
  return bad
end
local now, fence = clock()
local b = view(2)
local done, problem = seen(b, now)
if problem then
  return problem
end
if not old and not done then
  return reply('forgotten', nil, 0)
end
-- Also when it is done: then its owner is about to drop the lease, whatever it finds.
if old and old.state == IN_PROGRESS and old.left > 0 then
  return reply('in_flight', old, 0)
end
local floor = 0
if old then
  floor = math.max(old.floor, old.fence)
end
if old and old.forgotten then
  keep = math.max(keep, old.ttl)
end
if done then
  -- Its fence is not known. Fences begin with the time, of this server or of one that is
  -- ahead, and grow by one at a time: none has come to a millisecond from now.
  remove(b)
  floor = math.max(floor, fence + 1024, tonumber(ARGV[6]))
end
if old and old.danger then
  leave()
end
local r = {
  state = RELEASED, forgotten = true, fence = floor, attempt = 0, span = 0,
  half = string.rep('\0', 8), floor = floor,
  fingerprint = '', origin = '', label = '', steps = '', plain = old and old.plain,
}
write(KEYS[1], r, keep)
return reply('forgotten', nil, 0)
