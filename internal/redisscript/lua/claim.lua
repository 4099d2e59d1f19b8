-- claim decides, on the server's clock, who may run the effect of a key.
--
-- KEYS[1]  the record; buckets may follow, see bucket.lua, and the index, see index.lua
-- ARGV     1 token (16 bytes)  2 lease in ms  3 hold in ms
--          4 fingerprint (17 bytes or none)  5 origin (24 or none)  6 label (0-255)
--          7 take: 1 from somebody who is going to find out about an uncertain key
--          8 over: 1 from somebody who takes a live lease over that was claimed for the same
--          partition in an older generation
--          9 first: 1 from somebody who wants a key only if it has no attempt yet
--          10 plain: 1 from somebody whose end may compare nothing
--          11 asks: 1 from somebody who wants a key only if it is uncertain, and is not
--          counted. It implies take
--          12 arguments of the buckets
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          acquired, mine, duplicate, in_flight, mismatch, uncertain, unreadable,
--          edge
--
-- It has no allow-oom flag, and no shebang at all: so a full server still answers what
-- it knows, and refuses (OOM) only the SET of a new claim.

local token, lease, hold = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local take, over, first, danger = ARGV[7] == '1', ARGV[8] == '1', ARGV[9] == '1', nil
local asks = ARGV[11] == '1'
local old, bad = read(KEYS[1])
if bad then
  return bad
end
local now, fence = clock()
local done, problem = seen(view(12), now)
if problem then
  return problem
end

-- conflicts compares fingerprints of one version; 0 is none.
local function conflicts(a, b)
  return a ~= '' and b ~= '' and string.byte(a, 1) ~= 0 and string.byte(a, 1) == string.byte(b, 1) and a ~= b
end

-- outranks reports whether an origin is of the same source and partition as another, and
-- of a newer generation. Both are above zero: a negative one is large here.
local function outranks(a, b)
  if #a ~= 24 or #b ~= 24 or string.sub(a, 1, 12) ~= string.sub(b, 1, 12) or string.sub(a, 1, 8) == string.rep('\0', 8) then
    return false
  end
  local newer, older = join(string.byte(a, 21, 24)), join(string.byte(b, 21, 24))
  return older > 0 and older < newer and newer < 2147483648
end

-- A digest that is a member is done, whoever still has a lease: those are dropped after
-- the member was added. Only an end on record says more than membership does.
if done and not (old and (old.state == SUCCEEDED or old.state == FAILED)) then
  return reply('duplicate', done, now)
end
if old and not old.forgotten then
  if conflicts(old.fingerprint, ARGV[4]) then
    return reply('mismatch', old, now)
  end
  if old.state == SUCCEEDED or old.state == FAILED then
    return reply('duplicate', old, now)
  end
  danger = old.state == UNCERTAIN
  if old.state == IN_PROGRESS then
    -- Our own token is an earlier send whose reply was lost, even if it has lapsed.
    if old.token == token then
      return reply('mine', old, now)
    end
    -- An irreversible claim is passed by nobody: what may have begun cannot be told from what has not.
    if old.left > 0 and not (over and not old.danger and outranks(ARGV[5], old.origin)) then
      return reply('in_flight', old, now)
    end
    danger = old.danger
  end
  local leaves = first and old.attempt > 0
  if danger and not asks and (leaves or not take) then
    return reply('uncertain', old, now)
  end
  -- It could be had: whoever is told so sees no lease in the way.
  if leaves and not asks then
    old.left = math.min(old.left, 0)
    return reply('in_flight', old, now)
  end
end
if asks and not danger then
  return reply('in_flight', old, now)
end

local r = {
  state = IN_PROGRESS, fence = fence, attempt = 1, span = hold, token = token, floor = 0,
  fingerprint = ARGV[4], origin = ARGV[5], label = ARGV[6], steps = '', plain = ARGV[10] == '1',
}
if old then
  r.plain = r.plain or old.plain
  r.fence, r.floor = math.max(old.fence + 1, fence), old.floor
  if not old.forgotten then
    r.attempt, r.steps = math.min(old.attempt + 1, MAX_ATTEMPT), old.steps
    if r.fingerprint == '' then
      r.fingerprint = old.fingerprint
    end
  end
end
if danger then
  -- Until somebody has found out, it stays dangerous, and is kept as long as it was.
  r.danger, r.span = true, math.max(hold, old.ttl - lease)
  enter(now, lease + r.span, 1, now + lease)
  if asks then
    r.attempt, r.origin, r.label = old.attempt, old.origin, old.label
  end
end
write(KEYS[1], r, lease + r.span)
return reply('acquired', r, now)
