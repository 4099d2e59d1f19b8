#!lua flags=allow-oom
-- drop gives a lease up that guards nothing: the key was found to be done. Only the
-- owner's own.
--
-- KEYS[1]  the record
-- ARGV     1 token (16 bytes)
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          dropped
--          kept        it was not there, or not ours; with what there is
--          unreadable

local r, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()
if r and r.state == IN_PROGRESS and r.token == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return {'dropped', 0, 0, ''}
end
return reply('kept', r, now)
