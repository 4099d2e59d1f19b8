-- Prelude of every script: reads and writes the record that a key holds.
-- Go's twin is redisadapter/internal/wire/record.go; a test holds the two together.
--
-- All numbers are big-endian and positions count from 1:
--
--   1   1  version, 1
--   2   1  state: 1 in progress, 2 succeeded, 3 failed, 4 released, 5 uncertain
--   3   2  flags, below
--   5   4  length of the whole value: a truncated one is recognised
--   9   8  fence, below 2^53 - 1
--  17   4  attempt
--  21   6  in progress: the hold in ms; succeeded and failed: the server's clock at that
--          moment in ms; otherwise 0
--  27   8  first half of the owner's token
--  35   8  second half, in progress only: later the half is enough to know one's own work
--
-- then the sections that the flags announce, in the order of the flags:
--
--   0x001  no_result    -    a result existed and was not kept
--   0x002  danger       -    the irreversible part may have begun
--   0x004  late         -    succeeded was written by somebody who held nothing
--   0x008  forgotten    -    this is what Forget leaves behind (released, attempt 0)
--   0x010  floor        8    owners with a fence up to this one were forgotten
--   0x020  fingerprint  17
--   0x040  origin       24   digest of the source 8, partition 4, offset 8, generation 4
--   0x080  label        1+n
--   0x100  steps        4+n  of the attempt's, in a form of its own; while unfinished
--   0x200  result       n    the rest
--   0x400  kept         6    succeeded and failed: for how many ms; stands before the result
--   0x800  plain        -    an end that compares nothing may be on its way, so that no result
--                            is kept of this key. It stays as long as the key does
--
-- Anything else is unreadable: not absent, not done, and never overwritten.

local VERSION, HEADER = 1, 34
local IN_PROGRESS, SUCCEEDED, FAILED, RELEASED, UNCERTAIN = 1, 2, 3, 4, 5
-- Largest fence: Lua's numbers are doubles, and it must still be possible to add 1.
local MAX_FENCE, MAX_ATTEMPT = 9007199254740990, 4294967295

-- join and split turn four bytes into a number and back. They are spelt out, and the
-- header is read and written by one call each: a loop over bytes is most of what a script
-- would cost.
local function join(a, b, c, d)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function split(v)
  local d = v % 256
  v = (v - d) / 256
  local c = v % 256
  v = (v - c) / 256
  local b = v % 256
  return (v - b) / 256, b, c, d
end

local function high(v)
  return math.floor(v / 4294967296)
end

local function has(flags, bit)
  return math.floor(flags / bit) % 2 == 1
end

-- sections reads what follows the header and the token, from position at on, into r, and
-- reports whether it could.
local function sections(r, v, flags, at)
  -- take returns the next n bytes, or nil when there are not that many.
  local function take(n)
    if at + n - 1 > #v then
      return nil
    end
    at = at + n
    return string.sub(v, at - n, at - 1)
  end
  if has(flags, 16) then
    local s = take(8)
    if not s then
      return false
    end
    r.floor = join(string.byte(s, 1, 4)) * 4294967296 + join(string.byte(s, 5, 8))
    if r.floor > MAX_FENCE then
      return false
    end
  end
  if has(flags, 32) then
    r.fingerprint = take(17)
  end
  if has(flags, 64) then
    r.origin = take(24)
  end
  if not r.fingerprint or not r.origin then
    return false
  end
  if has(flags, 128) then
    local n = take(1)
    r.label = n and take(string.byte(n))
  end
  if has(flags, 256) then
    local n = take(4)
    r.steps = n and take(join(string.byte(n, 1, 4)))
  end
  if not r.label or not r.steps then
    return false
  end
  if has(flags, 1024) then
    local s = take(6)
    if not s then
      return false
    end
    local a, b = string.byte(s, 1, 2)
    r.kept = (a * 256 + b) * 4294967296 + join(string.byte(s, 3, 6))
  end
  if has(flags, 512) then
    r.result = string.sub(v, at)
    return true
  end
  return at == #v + 1
end

-- decode returns the record in v, or nil when it cannot be read.
local function decode(v)
  local version, state, f1, f2, l1, l2, l3, l4, e1, e2, e3, e4, e5, e6, e7, e8,
    a1, a2, a3, a4, s1, s2, s3, s4, s5, s6 = string.byte(v, 1, 26)
  if #v < HEADER or version ~= VERSION or join(l1, l2, l3, l4) ~= #v then
    return nil
  end
  local flags, at = f1 * 256 + f2, HEADER + 1
  local r = {
    raw = v, state = state, fence = join(e1, e2, e3, e4) * 4294967296 + join(e5, e6, e7, e8),
    attempt = join(a1, a2, a3, a4), span = (s1 * 256 + s2) * 4294967296 + join(s3, s4, s5, s6),
    half = string.sub(v, 27, HEADER), floor = 0, fingerprint = '', origin = '', label = '', steps = '',
  }
  if state < IN_PROGRESS or state > UNCERTAIN or flags >= 4096 or r.fence > MAX_FENCE then
    return nil
  end
  if state == IN_PROGRESS then
    at = HEADER + 9
    if #v < at - 1 then
      return nil
    end
    r.token = string.sub(v, 27, at - 1)
  end
  if flags % 16 > 0 then
    r.no_result, r.danger, r.late, r.forgotten = has(flags, 1), has(flags, 2), has(flags, 4), has(flags, 8)
  end
  r.plain = flags >= 2048
  if not sections(r, v, flags, at) then
    return nil
  end
  return r
end

-- encode writes the record r.
local function encode(r)
  local flags, body = 0, r.half
  if r.state == IN_PROGRESS then
    body = r.token
  end
  if r.no_result then flags = flags + 1 end
  if r.danger then flags = flags + 2 end
  if r.late then flags = flags + 4 end
  if r.forgotten then flags = flags + 8 end
  if r.plain then flags = flags + 2048 end
  if r.floor > 0 then
    local a, b, c, d = split(high(r.floor))
    flags, body = flags + 16, body .. string.char(a, b, c, d, split(r.floor % 4294967296))
  end
  if r.fingerprint ~= '' then flags, body = flags + 32, body .. r.fingerprint end
  if r.origin ~= '' then flags, body = flags + 64, body .. r.origin end
  if r.label ~= '' then flags, body = flags + 128, body .. string.char(#r.label) .. r.label end
  if r.steps ~= '' then flags, body = flags + 256, body .. string.char(split(#r.steps)) .. r.steps end
  if r.kept then
    local _, _, a, b = split(high(r.kept))
    flags, body = flags + 1024, body .. string.char(a, b, split(r.kept % 4294967296))
  end
  if r.result then flags, body = flags + 512, body .. r.result end
  local l1, l2, l3, l4 = split(26 + #body)
  local e1, e2, e3, e4 = split(high(r.fence))
  local e5, e6, e7, e8 = split(r.fence % 4294967296)
  local a1, a2, a3, a4 = split(r.attempt)
  local _, _, s1, s2 = split(high(r.span))
  return string.char(VERSION, r.state, (flags - flags % 256) / 256, flags % 256, l1, l2, l3, l4,
    e1, e2, e3, e4, e5, e6, e7, e8, a1, a2, a3, a4, s1, s2, split(r.span % 4294967296)) .. body
end

-- clock returns the server's time in ms, and the same moment as a fence: 1024 to the ms.
local function clock()
  local t = redis.call('TIME')
  local seconds, micros = tonumber(t[1]), tonumber(t[2])
  local ms = seconds * 1000 + math.floor(micros / 1000)
  return ms, ms * 1024 + micros % 1000
end

-- read returns the record of key with r.ttl, the ms it has to live, and r.left, the ms
-- its lease has left. For an absent key it returns nil; for one that cannot be read nil
-- and what the script must return. Our keys always expire, so one that does not is not
-- ours, or no longer what we wrote: its lease cannot be known.
local function read(key)
  local v = redis.pcall('GET', key)
  if not v then
    return nil, nil
  end
  if type(v) == 'table' then
    return nil, v
  end
  local r, ttl = decode(v), redis.call('PTTL', key)
  if not r or ttl < 0 then
    return nil, {'unreadable', #v, string.byte(v, 1) or 0, ''}
  end
  r.ttl, r.left = ttl, ttl
  if r.state == IN_PROGRESS then
    r.left = ttl - r.span
  end
  return r, nil
end

-- write stores r for ttl ms: in one command, so that no crash leaves it without an end.
local function write(key, r, ttl)
  r.raw = encode(r)
  redis.call('SET', key, r.raw, 'PX', string.format('%.0f', ttl))
  r.ttl, r.left = ttl, ttl
  if r.state == IN_PROGRESS then
    r.left = ttl - r.span
  end
end

-- reply builds what every script returns: an answer, the ms left (of the lease in
-- progress, of the record otherwise), the ms since the end, and the record.
local function reply(answer, r, now)
  if not r then
    return {answer, 0, 0, ''}
  end
  local age = 0
  if r.state == SUCCEEDED or r.state == FAILED then
    age = math.max(now - r.span, 0)
  end
  return {answer, r.left, age, r.raw}
end
