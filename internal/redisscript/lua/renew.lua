#!lua flags=allow-oom
-- renew makes the lease of a claim last from now, if the token still owns it: with another
-- fence it is another claim, which a late copy of its request has made. It never
-- creates: an absent, finished or taken-over key stays as it is. With the same write it
-- declares danger, and keeps steps.
--
-- KEYS[1]  the record; the index may follow, see index.lua
-- ARGV     1 token (16 bytes)  2 lease in ms  3 hold in ms
--          4 danger: 1 when the irreversible part begins
--          5 ms for which a key with danger is kept at least, 0 for none
--          6 steps: replaces what is kept unless it is shorter, and so came late
--          7 fence of the claim, 0 if it is not known
-- Returns  {answer, ms left, ms since the end, record}, where answer is one of
--          held, lost, unreadable

local token, lease, hold, fence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[7])
local r, bad = read(KEYS[1])
if bad then
  return bad
end
local now = clock()
if not r or r.state ~= IN_PROGRESS then
  return reply('lost', r, now)
end
if r.token ~= token or fence > 0 and fence ~= r.fence then
  return reply('lost', r, now)
end
r.span = hold
r.danger = r.danger or ARGV[4] == '1'
if #ARGV[6] > 0 and #ARGV[6] >= #r.steps then
  r.steps = ARGV[6]
end
if r.danger then
  -- Irreversible lengthens the key's life to the window; a renewal must not cut it.
  r.span = math.max(hold, r.ttl - lease, tonumber(ARGV[5]) - lease)
  enter(now, lease + r.span, 0, now + lease)
end
write(KEYS[1], r, lease + r.span)
return reply('held', r, now)
