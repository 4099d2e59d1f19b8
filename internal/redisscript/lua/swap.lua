#!lua flags=allow-oom
-- swap replaces the value of a key that is still what its caller has read. A second send finds
-- what the first has written. The key has no end.
--
-- KEYS     the key
-- ARGV     1 the value as it was read, '' for none  2 the new one, not ''
-- Returns  {answer, 0, 0, the value as it is now}, where answer is one of
--          swapped  it is the new one, now or from before
--          other    it was not what the caller has read; nothing was done

local value = redis.call('GET', KEYS[1]) or ''
if value == ARGV[2] then
  return {'swapped', 0, 0, value}
end
if value ~= ARGV[1] then
  return {'other', 0, 0, value}
end
redis.call('SET', KEYS[1], ARGV[2])
return {'swapped', 0, 0, ARGV[2]}
