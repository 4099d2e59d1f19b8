#!lua flags=no-writes
-- lookup reads a key. A script, because GET and PTTL must be of one moment, and because
-- a client that reads from replicas sends plain reads there, where they may be stale.
--
-- KEYS[1]  the record; buckets may follow, see bucket.lua
-- ARGV     1 arguments of the buckets
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          found, absent, unreadable, edge

local r, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()
local done, problem = seen(view(1), now)
if problem then
  return problem
end
if done and not (r and (r.state == SUCCEEDED or r.state == FAILED)) then
  r = done
end
if not r then
  return reply('absent', nil, 0)
end
return reply('found', r, now)
