-- Prelude of the scripts that keep the index of keys past their point of no return: a hash in
-- the slot of the record, whose key is the last of KEYS and has ':irreversible' in it. Without
-- it (package lease) a script keeps none.
--
-- A field is an ID, as the name of the record has it. Its value is four numbers, of ms by the
-- server's clock:
--
--   since    when the point of no return was declared
--   asked    how many claims the key has had since then
--   rested   when the newest of them ends, or has ended
--   expires  when the record has for certain
--
-- A record with danger always has its entry: enter goes before the write. An entry may outlive
-- its record (one that a plain command has replaced, or that has expired), or come before its
-- danger (enter.lua), so readers look at the record. It expires later than the record, in case
-- that is written once more while record and index are on two servers.

local index
if #KEYS > 1 and string.find(KEYS[#KEYS], ':irreversible', 1, true) then
  index = table.remove(KEYS)
end

-- field is the ID in the name of the record.
local function field()
  return string.match(KEYS[1], '([%w_%-]+)}?$')
end

-- prune drops entries whose records have expired, of two that chance picks for each that is
-- entered: so those that nobody reads do not pile up.
local function prune(now)
  local some = redis.call('HRANDFIELD', index, 2, 'WITHVALUES')
  for i = 1, #some, 2 do
    local expires = tonumber(string.match(some[i + 1], '(%d+)$'))
    if expires and expires < now then
      redis.call('HDEL', index, some[i])
    end
  end
end

-- enter puts the key into the index, or changes its entry. The record is about to live for ttl
-- ms; asked counts up, and rested is kept when it is nil.
local function enter(now, ttl, asked, rested)
  if not index then
    return
  end
  local id, since, before = field(), now, 0
  local old = redis.call('HGET', index, id)
  if old then
    local s, a, r = string.match(old, '^(%d+) (%d+) (%d+) %d+$')
    since, before, rested = tonumber(s) or now, tonumber(a) or 0, rested or tonumber(r)
  else
    prune(now)
  end
  local expires = now + 2 * ttl
  redis.call('HSET', index, id,
    string.format('%.0f %.0f %.0f %.0f', since, before + asked, rested or now, expires))
  if redis.call('PTTL', index) < 2 * ttl then
    redis.call('PEXPIREAT', index, string.format('%.0f', expires))
  end
end

-- leave takes the key out of the index. An end must not fail with the index, so it returns what
-- HDEL does, an error as a table.
local function leave()
  return index and redis.pcall('HDEL', index, field())
end
