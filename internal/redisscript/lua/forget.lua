#!lua flags=allow-oom
-- forget makes a key claimable from attempt 1. What it leaves behind keeps the fence, so
-- that an owner from before writes nothing, and the next claim's fence is larger.
--
-- KEYS[1]  the record
-- ARGV     1 ms to keep the fence
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          forgotten, in_flight (nothing was changed), unreadable

local keep = tonumber(ARGV[1])
local old, bad = read(KEYS[1])
if bad then
  return bad
end
if not old then
  return reply('forgotten', nil, 0)
end
if old.state == IN_PROGRESS and old.left > 0 then
  return reply('in_flight', old, 0)
end
if old.forgotten then
  keep = math.max(keep, old.ttl)
end
local r = {
  state = RELEASED, forgotten = true, fence = old.fence, attempt = 0, span = 0,
  half = string.rep('\0', 8), floor = math.max(old.floor, old.fence),
  fingerprint = '', origin = '', label = '', steps = '',
}
write(KEYS[1], r, keep)
return reply('forgotten', nil, 0)
