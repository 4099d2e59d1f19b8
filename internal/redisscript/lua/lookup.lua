#!lua flags=no-writes
-- lookup reads a key. A script, because GET and PTTL must be of one moment, and because
-- a client that reads from replicas sends plain reads there, where they may be stale.
--
-- KEYS[1]  the record
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          found, absent, unreadable

local r, bad = read(KEYS[1])
if bad then
  return bad
end
if not r then
  return reply('absent', nil, 0)
end
return reply('found', r, (clock()))
