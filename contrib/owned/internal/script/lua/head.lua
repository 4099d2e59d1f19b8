-- Prelude of the scripts of owned partitions: reads their head, and answers. Go's twin is
-- read.go.
--
-- All keys of a partition share one hash tag:
--
--   head  hash without an end: version; epoch; since (the first epoch of the unbroken
--         ownership to which it belongs: what began in those from it on is alive as long
--         as own is there); generation (of the consumer group); mapver
--         (version of the map); shared (ms until which nobody may begin); seq; fence;
--         forgets; g (the newest generation, which only grows); lost (1 when members were
--         lost); and for each generation: new:g and fold:g, the newest and the last folded
--         fresh set, which count from 1; fresh:g and kept:g, the number of members in
--         fresh sets that are not folded, and in buckets
--   own   token and epoch of who holds the partition, with the lease as its end
--   run   hash: field epoch:n -> ms since 1970 (8 bytes) when a batch began, and its ids
--         (8 bytes each). A field is written once, and goes as a whole; of an owner who is
--         gone, a forget takes an id out
--   fresh set n of generation g: members that are done, and others, one higher, that are
--         touched. A bucket of g: a string of members that were in fresh sets, each at
--         least once. Both end two slices and keep after g is over
--
-- Members are 64-bit numbers, which no double holds: they stay the 8 bytes they came as,
-- the most significant first. A call brings all of one kind in one string: an argument for
-- each would cost more than to cut them out here.
--
-- Every script returns 14 values:
--
--   answer, ms of this server's clock, ms left of another's lease, shared, g, newest fresh
--   set, epoch, the epoch before, seq, fence, forgets, mapver, 1 if a foreign query finds
--   somebody holding the partition and 2 if an owner's finds that sets were folded, a byte for each id that was asked for
--
-- Without a head that is amnesia, the clock, and nothing else. A head of another version
-- is unreadable (in the place of ms left: its version), and nothing is done.

local VERSION = '1'

-- chunk is how many arguments a command gets at most: Lua's stack has a limit.
local chunk = 1000

local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- text is how a number is written; tostring would say 1e+15.
local function text(n)
  return string.format('%.0f', n)
end

local function answer(word, now, h)
  return {
    word, now, h.left or 0, h.shared, h.g, h.newest or 0, h.epoch, h.before or 0, h.seq, h.fence, h.forgets,
    h.mapver, h.live or 0, h.found or '',
  }
end

-- read returns head, or nil and what the script must return. More fields, as numbers, are
-- in more.
local function read(now, ...)
  local v = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'mapver', 'shared', 'seq', 'fence', 'forgets', 'g', ...)
  if v[1] ~= VERSION then
    local none = {shared = 0, g = 0, epoch = 0, seq = 0, fence = 0, forgets = 0, mapver = 0}
    if not v[1] then
      return nil, answer('amnesia', now, none)
    end
    none.left = tonumber(v[1]) or 0
    return nil, answer('unreadable', now, none)
  end
  local more = {}
  for i = 9, #v do
    more[i - 8] = tonumber(v[i] or 0)
  end
  return {
    epoch = tonumber(v[2]), mapver = tonumber(v[3]), shared = tonumber(v[4]), seq = tonumber(v[5]),
    fence = tonumber(v[6]), forgets = tonumber(v[7]), g = tonumber(v[8]), more = more,
  }
end

-- later returns a number that is above n, and above those that any server gave out before
-- now: a partition that was born anew does not come back to numbers that it has had.
local function later(n, now)
  return math.max(n + 1, now * 1024)
end

-- stamp returns a time as 8 bytes, and time reads one.
local function stamp(ms)
  local b = {}
  for i = 8, 1, -1 do
    local d = ms % 256
    b[i] = string.char(d)
    ms = (ms - d) / 256
  end
  return table.concat(b)
end

local function time(blob)
  local ms = 0
  for i = 1, 8 do
    ms = ms * 256 + string.byte(blob, i)
  end
  return ms
end

-- cut returns the ids (8 bytes each) of a list.
local sub = string.sub
local function cut(list)
  local all = {}
  for i = 1, #list / 8 do
    all[i] = sub(list, 8 * i - 7, 8 * i)
  end
  return all
end

-- began is the epoch in which a field of run began.
local function began(field)
  return tonumber(string.match(field, '^%d+'))
end

-- has reports whether an id (8 bytes) is in a list of ids.
local function has(ids, id)
  local at = string.find(ids, id, 1, true)
  while at and at % 8 ~= 1 do
    at = string.find(ids, id, at + 1, true)
  end
  return at ~= nil
end
