#!lua flags=allow-oom
-- swap replaces the value of a key that is still what its caller has read. A second send finds
-- what the first has written. The key has no end.
--
-- KEYS     the key
-- ARGV     1 the value as it was read, '' for none  2 the new one, not ''
-- Returns  1 when it is the new one, now or from before; 0 when it was not what the caller has
--          read: nothing was done

local value = redis.call('GET', KEYS[1]) or ''
if value == ARGV[2] then
  return 1
end
if value ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
