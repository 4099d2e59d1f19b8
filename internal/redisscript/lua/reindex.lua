#!lua flags=allow-oom
-- reindex makes the index agree with a record: for a reader that has found an entry whose attempt
-- has ended, or a danger from before there was an index.
--
-- KEYS[1]  the record; the index follows, see index.lua
-- Returns  {answer, 0, 0, ''}, where answer is one of
--          entered
--          kept     it is in progress, and may have been entered before its danger
--          left
--          unreadable

local r, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()
if r and r.danger then
  local rested
  if r.state == IN_PROGRESS then
    rested = now + r.left
  end
  enter(now, r.ttl, 0, rested)
  return {'entered', 0, 0, ''}
end
if r and r.state == IN_PROGRESS then
  return {'kept', 0, 0, ''}
end
local out = leave()
if type(out) == 'table' then
  return out
end
return {'left', 0, 0, ''}
