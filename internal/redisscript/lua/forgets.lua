#!lua flags=allow-oom
-- forgets reads the number that tells caches of finished keys that something was
-- forgotten, or changes it. The number is random and not counted up: where it was lost
-- (expired, evicted, flushed, or never replicated), a count would come back to values it
-- has had, and a cache that saw one of them before would not notice. So it may also
-- expire, like every key of ours: an emptied cache is all that costs.
--
-- KEYS[1]  the number; it is no record
-- ARGV     1 a random number   2 1 to put it there, 0 to do so only if there is none
--          3 ms to keep it
-- Returns  {answer, 0, 0, number}, where answer is one of
--          forgets, unreadable (as in record.lua; nothing was changed)

local number = redis.pcall('GET', KEYS[1])
if type(number) == 'table' then -- another type
  return number
end
if number and not string.find(number, '^%d+$') then
  return {'unreadable', #number, string.byte(number, 1) or 0, ''}
end
if ARGV[2] == '1' or not number then
  number = ARGV[1]
  redis.call('SET', KEYS[1], number, 'PX', ARGV[3])
end
return {'forgets', 0, 0, number}
