#!lua flags=allow-oom
-- enter puts a key into the index, before a script for the record alone declares its danger: for
-- a slot that moves, while record and index may be on two servers.
--
-- KEYS[1]  the index, see index.lua
-- ARGV     1 the ID, as the name of the record has it  2 ms for which the record is kept
--          3 lease in ms
-- Returns  {'entered', 0, 0, ''}

index, field = KEYS[1], function() return ARGV[1] end
local now = clock()
enter(now, tonumber(ARGV[2]), 0, now + tonumber(ARGV[3]))
return {'entered', 0, 0, ''}
