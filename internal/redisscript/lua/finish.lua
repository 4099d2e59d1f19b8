#!lua flags=allow-oom
-- finish ends an attempt: succeeded, failed or released.
--
-- KEYS[1]  the record; buckets may follow, see bucket.lua, and the index, see index.lua
-- ARGV     1 token (16 bytes)  2 state to reach (2, 3, 4)  3 ms to keep it
--          4 landed: 1 when the effect has happened, whoever owns the key now
--          5 fence of the attempt, 0 for none  6 attempt  7 no_result: 1
--          8 fingerprint (17 bytes or none)  9 origin (24 or none)  10 label (0-255)
--          11 1 when there is a result  12 the result
--          13 ms to keep it when it ends as uncertain
--          14 not_begun: 1 when its irreversible part has not begun after all
--          15 unused: 1 when its turn never came, and it does not count
--          16 arguments of the buckets
--          20 the generation to add to, or that of now if it is later; none to write a
--          record
--          21 ms for which a record is left beside the member, so that this very change
--          is recognised when it is sent again, 0 for none
--          22 added: 1 when an earlier command of this change has added the member
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          held     the owner's write is on record; the record comes without the result
--          again    the same write was on record already, with its result
--          landed   written by somebody who held nothing; without the result
--          landed_again
--          refused  nothing was written
--          member   nothing was written; there is no record, the digest is a member
--          unreadable, edge

local token, state, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fence, half = tonumber(ARGV[5]), string.sub(ARGV[1], 1, 8)
local old, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()

local held = false
if old and old.state == IN_PROGRESS then
  -- With another fence it is another claim, which a late copy of its request has made.
  held = old.token == token and (fence == 0 or fence == old.fence)
end
if state == RELEASED and old and old.danger and ARGV[14] ~= '1' then
  -- Its irreversible part may have begun: it ends as uncertain, for somebody to ask.
  state, keep = UNCERTAIN, math.max(keep, old.ttl, tonumber(ARGV[13]))
end

local b = view(16)
local done, problem = seen(b, now)
if problem then
  return problem
end
local into, added = nil, false
if b then
  into, added = tonumber(ARGV[20]), ARGV[22] == '1'
  if into then
    into = math.max(into, math.floor(now / b.window)) -- a caller's clock may be behind
  end
end

-- sent_again recognises what an earlier send of this very change has written.
local function sent_again()
  return old and not old.forgotten and old.state ~= IN_PROGRESS and old.state == state and old.half == half
end

-- may_land: an effect that has happened may be put on record by somebody who does not
-- hold the key, but never over an end, nor by an owner whom Forget has cut off.
local function may_land()
  if ARGV[4] ~= '1' then
    return false
  end
  if not old then
    return true
  end
  return old.state ~= SUCCEEDED and old.state ~= FAILED and (fence == 0 or fence > old.floor)
end

if done and not added and not (old and (old.state == SUCCEEDED or old.state == FAILED)) and not (held and into) then
  -- Done by somebody else, or by an earlier send that has dropped its lease. With the
  -- lease still there it was our own send: who lands late replaces another's lease.
  return reply(old and 'refused' or 'member', done, now)
end
if not held then
  if sent_again() then
    return reply(old.late and 'landed_again' or 'again', old, now)
  end
  if not may_land() then
    if added and old and old.state ~= SUCCEEDED and old.state ~= FAILED then
      remove(b) -- forgotten meanwhile: the command that added it came too late
    end
    return reply('refused', old, now)
  end
end

local r = {
  state = state, half = half, no_result = ARGV[7] == '1', late = not held,
  fence = fence, attempt = tonumber(ARGV[6]), span = 0, floor = 0,
  fingerprint = ARGV[8], origin = ARGV[9], label = ARGV[10], steps = '',
}
local result = ARGV[11] == '1'
if old then
  r.plain = old.plain
  if r.plain and state == SUCCEEDED and result then
    -- A late copy of an end that compares nothing would replace it.
    result, r.no_result = false, true
  end
  if held then
    r.fence, r.attempt = old.fence, old.attempt
    if ARGV[15] == '1' then
      r.attempt = math.max(old.attempt - 1, 0)
    end
  else
    r.fence, r.attempt = math.max(old.fence, fence), math.max(old.attempt, r.attempt)
  end
  if not old.forgotten then
    if r.fingerprint == '' then r.fingerprint = old.fingerprint end
    if r.origin == '' then r.origin = old.origin end
    if r.label == '' then r.label = old.label end
  end
end
if state == SUCCEEDED or state == FAILED then
  r.span, r.kept = now, keep
else
  r.no_result, r.floor, r.steps, r.danger = false, old.floor, old.steps, state == UNCERTAIN
end
if r.danger then
  enter(now, keep, 0, now)
elseif old and old.danger then
  leave()
end
if into then
  add(b, into)
  local receipt = tonumber(ARGV[21])
  if not held and old and old.state == IN_PROGRESS then
    receipt = math.max(receipt, old.ttl) -- whose owner is to find it
  end
  r.raw = encode(r)
  if receipt > 0 then
    write(KEYS[1], r, receipt)
  else
    redis.call('DEL', KEYS[1])
  end
  r.left = keep
  return reply(held and 'held' or 'landed', r, now)
end
local brief
if result then
  -- The caller has the result: it is stored, and not sent back.
  brief = encode(r)
  r.result = ARGV[12]
end
write(KEYS[1], r, keep)
r.raw = brief or r.raw
return reply(held and 'held' or 'landed', r, now)
