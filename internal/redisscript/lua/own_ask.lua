#!lua flags=no-writes
-- own_ask looks for ids in sets of a partition. Who does not hold the partition also looks
-- for them in run, in the same script: a begin and its mark change places in one turn, and
-- whoever looks first in one and then in the other may miss both. That holds only while
-- the newest fresh set is among those that are looked in.
--
-- KEYS     head; own and run when foreign; fresh sets; buckets
-- ARGV     1 epoch, the owner's or as it was read  2 1 when foreign  3 g and 4 the number
--          of its newest fresh set, as they were read, when foreign
--          5 number of ids  6 number of fresh sets; then for each id its members done and
--          touched; when foreign the ids, of 8 bytes each, as one; then for each bucket
--          which ids to look for in it: their indexes, from 1, with commas
-- Returns  as own.lua says, where answer is one of
--          found    with a byte for each id: 1 done, 2 touched, 4 begun in this epoch, and
--                   8 for each other epoch in which it was begun, up to 31 of them
--          stale    the epoch is another, or when foreign the newest fresh set: read head
--          amnesia  there is no head, or it says lost

local n, fresh, foreign = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[2] == '1'
local now = clock()
local h, bad = read(now, 'lost')
if bad then
  return bad
end
if h.more[1] == 1 then
  return answer('amnesia', now, h)
end
if foreign then
  h.newest = tonumber(redis.call('HGET', KEYS[1], 'new:' .. text(h.g)) or 0)
end
if h.epoch ~= tonumber(ARGV[1]) or foreign and (h.g ~= tonumber(ARGV[3]) or h.newest ~= tonumber(ARGV[4])) then
  return answer('stale', now, h)
end

local done, touched, begun = {}, {}, {}
for i = 1, n do
  done[i], touched[i], begun[i] = 0, 0, 0
end

-- look notes what SMISMEMBER has answered for id i, from place at on.
local function look(reply, at, i)
  if reply[at] == 1 then
    done[i] = 1
  end
  if reply[at + 1] == 1 then
    touched[i] = 2
  end
end

local key = foreign and 3 or 1 -- before the next one
for _ = 1, fresh do
  key = key + 1
  for from = 1, n, chunk / 2 do
    local to = math.min(from + chunk / 2 - 1, n)
    local reply = redis.call('SMISMEMBER', KEYS[key], unpack(ARGV, 5 + 2 * from, 6 + 2 * to))
    for i = from, to do
      look(reply, 1 + 2 * (i - from), i)
    end
  end
end
local at = 6 + 2 * n + (foreign and 1 or 0) -- before the first bucket's
for b = 1, #KEYS - key do
  for index in string.gmatch(ARGV[at + b], '%d+') do
    local i = tonumber(index)
    look(redis.call('SMISMEMBER', KEYS[key + b], ARGV[5 + 2 * i], ARGV[6 + 2 * i]), 1, i)
  end
end

if foreign then
  local epochs = {}
  local run = redis.call('HGETALL', KEYS[3])
  for f = 1, #run, 2 do
    local of = string.match(run[f], '^%d+')
    epochs[of] = (epochs[of] or '') .. string.sub(run[f + 1], 9)
  end
  for of, ids in pairs(epochs) do
    for i = 1, n do
      if has(ids, string.sub(ARGV[at], 8 * i - 7, 8 * i)) then
        if tonumber(of) == h.epoch then
          begun[i] = begun[i] + 4
        elseif begun[i] < 248 then
          begun[i] = begun[i] + 8
        end
      end
    end
  end
  h.live = redis.call('EXISTS', KEYS[2])
end
for i = 1, n do
  done[i] = string.char(done[i] + touched[i] + begun[i])
end
h.found = table.concat(done)
return answer('found', now, h)
