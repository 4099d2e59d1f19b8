#!lua flags=allow-oom
-- restore puts back what a plain completion has overwritten and must not have: an end
-- that was on record, or what Forget left behind. Only while the key still holds exactly
-- what that completion wrote.
--
-- KEYS[1]  the record; buckets may follow, see bucket.lua, and the index, see index.lua
-- ARGV     1 what was written, empty for what was deleted
--          2 what to put back  3 ms to keep it, 0 for ever
--          4 arguments of the buckets, out of which the member is taken
-- Returns  {answer, 0, 0, ''}, where answer is one of
--          restored
--          changed   somebody else has written since
--          unreadable, edge

local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then
  return v
end
local b, now = view(4), (clock())
local _, problem = seen(b, now)
if problem then
  return problem
end
if b then
  remove(b)
end
if (v or '') ~= ARGV[1] then
  return {'changed', 0, 0, ''}
end
local r = ARGV[3] ~= '0' and decode(ARGV[2])
if r and r.danger then
  enter(now, tonumber(ARGV[3]), 0, nil)
end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return {'restored', 0, 0, ''}
