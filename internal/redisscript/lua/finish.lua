#!lua flags=allow-oom
-- finish ends an attempt: succeeded, failed or released.
--
-- KEYS[1]  the record
-- ARGV     1 token (16 bytes)  2 state to reach (2, 3, 4)  3 ms to keep it
--          4 landed: 1 when the effect has happened, whoever owns the key now
--          5 fence of the attempt, 0 for none  6 attempt  7 no_result: 1
--          8 fingerprint (17 bytes or none)  9 origin (24 or none)  10 label (0-255)
--          11 1 when there is a result  12 the result
--          13 ms to keep it when it ends as uncertain
--          14 not_begun: 1 when its irreversible part has not begun after all
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          held     the owner's write is on record; the record comes without the result
--          again    the same write was on record already, with its result
--          landed   written by somebody who held nothing; without the result
--          landed_again
--          refused  nothing was written
--          unreadable

local token, state, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fence, half = tonumber(ARGV[5]), string.sub(ARGV[1], 1, 8)
local old, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()

local held = false
if old and old.state == IN_PROGRESS then
  held = old.token == token
end
if state == RELEASED and old and old.danger and ARGV[14] ~= '1' then
  -- Its irreversible part may have begun: it ends as uncertain, for somebody to ask.
  state, keep = UNCERTAIN, math.max(keep, old.ttl, tonumber(ARGV[13]))
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

if not held then
  if sent_again() then
    return reply(old.late and 'landed_again' or 'again', old, now)
  end
  if not may_land() then
    return reply('refused', old, now)
  end
end

local r = {
  state = state, half = half, no_result = ARGV[7] == '1', late = not held,
  fence = fence, attempt = tonumber(ARGV[6]), span = 0, floor = 0,
  fingerprint = ARGV[8], origin = ARGV[9], label = ARGV[10], steps = '',
}
if old then
  if held then
    r.fence, r.attempt = old.fence, old.attempt
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
local brief
if ARGV[11] == '1' then
  -- The caller has the result: it is stored, and not sent back.
  brief = encode(r)
  r.result = ARGV[12]
end
write(KEYS[1], r, keep)
r.raw = brief or r.raw
return reply(held and 'held' or 'landed', r, now)
