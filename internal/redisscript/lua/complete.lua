#!lua flags=allow-oom
-- complete ends claims that are still their owners': the short way for many keys of one
-- server, or of one slot. What it finds otherwise is left as it is, for finish to decide.
-- It comes without the prelude: making its functions would cost more than the work.
--
-- KEYS     the records; the index may follow, see index.lua
-- ARGV     1 ms to keep them
--          2 which of the sections fingerprint, origin and label they have: the flags 0x20,
--          0x40 and 0x80 divided by 0x20. The claims must have the same, or finish has to
--          put the two together. A claim with the flag 0x800 is for finish, too
--          then for each key: its token (16 bytes), and the record to write, with the
--          fence and attempt that the claim must have
-- Returns  {'completed', 0, 0, a byte for each key: 1 for written, 0 for not}

local sections, n, done, index = tonumber(ARGV[2]), #KEYS, {}, nil
if string.find(KEYS[n], ':irreversible', 1, true) then
  index = KEYS[n]
  n = n - 1
end
for i = 1, n do
  local key = KEYS[i]
  local old = redis.pcall('GET', key)
  done[i] = '0'
  if type(old) == 'string' then
    local version, state, high, flags = string.byte(old, 1, 4)
    if version == 1 and state == 1 and high < 8 and string.sub(old, 27, 42) == ARGV[2 * i + 1]
      and string.sub(old, 9, 20) == string.sub(ARGV[2 * i + 2], 9, 20)
      and math.floor(flags / 32) == sections then
      if index and flags % 4 > 1 then
        redis.pcall('HDEL', index, string.match(key, '([%w_%-]+)}?$'))
      end
      redis.call('SET', key, ARGV[2 * i + 2], 'PX', ARGV[1])
      done[i] = '1'
    end
  end
end
return {'completed', 0, 0, table.concat(done)}
