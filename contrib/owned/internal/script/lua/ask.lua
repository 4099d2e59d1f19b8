#!lua flags=no-writes
-- ask looks for ids in sets of a partition. Who does not hold the partition also looks
-- for them in run, in the same script: a begin and its mark change places in one batch write, and
-- whoever looks first in one and then in the other may miss both. That holds only while
-- the newest fresh set is among those that are looked in. The owner reads the buckets
-- himself, which is cheaper: NewAsk says why he may.
--
-- KEYS     head; own and run when foreign; fresh sets; buckets when foreign
-- ARGV     1 epoch, the owner's or as it was read  2 1 when foreign  3 g and 4 the number
--          of its newest fresh set, as they were read, when foreign  5 the members done of
--          all ids, which are the ids, and 6 the members touched, of 8 bytes each
--          7 number of fresh sets; then when foreign for each bucket which ids to look for in
--          it: their indexes, from 1, with commas; else generations, each with the last set
--          of it that was folded, as far as the owner knows
-- Returns  as head.lua says, where answer is one of
--          found    with a byte for each id: 1 done, 2 touched and not done, 4 begun in
--                   an epoch from since on, and 8 for each further epoch in which it was
--                   begun, up to 31
--          stale    the epoch is another, or when foreign the newest fresh set: read head
--          amnesia  there is no head, or it says lost

local n, sets, foreign = #ARGV[5] / 8, tonumber(ARGV[7]), ARGV[2] == '1'
local now = clock()
local fields = {'lost', 'since'}
for i = 8, foreign and 0 or #ARGV, 2 do
  fields[#fields + 1] = 'fold:' .. ARGV[i]
end
local h, bad = read(now, unpack(fields))
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

local marked, touched, begun, all = {}, {}, {}, {}
for i = 1, n do
  marked[i], touched[i], begun[i], all[i] = 0, 0, 0, i
end
local ids = cut(ARGV[5])
local fresh = foreign and 3 or 1 -- keys before the first
local left = n -- ids without a mark

-- open returns which of the ids in list have no mark.
local function open(list)
  if left == n then
    return list
  end
  local some = {}
  for _, i in ipairs(list) do
    if marked[i] == 0 then
      some[#some + 1] = i
    end
  end
  return some
end

-- inSet tells of each id in list whether its member is in a fresh set.
local function inSet(key, list, members)
  local found = {}
  for from = 1, #list, chunk do
    local some, to = members, math.min(from + chunk - 1, #list)
    if list ~= all then
      some = {}
      for i = from, to do
        some[i] = members[list[i]]
      end
    end
    for i, is in ipairs(redis.call('SMISMEMBER', key, unpack(some, from, to))) do
      found[from + i - 1] = is == 1
    end
  end
  return found
end

-- inBucket does so of a bucket.
local function inBucket(key, list, members)
  local found, of = {}, #list > 0 and redis.call('GET', key) or ''
  for i = 1, #list do
    found[i] = has(of, members[list[i]])
  end
  return found
end

-- look notes in found which of the ids have their members in a set or bucket, and returns
-- how many that did not.
local function look(s, found, members)
  local list, look = all, inSet
  if s > sets then
    list, look = {}, inBucket
    for index in string.gmatch(ARGV[7 + s - sets], '%d+') do
      list[#list + 1] = tonumber(index)
    end
  end
  list = open(list)
  local hits = 0
  for i, is in ipairs(look(KEYS[fresh + s], list, members)) do
    if is and found[list[i]] == 0 then
      found[list[i]] = 1
      hits = hits + 1
    end
  end
  return hits
end

-- First the marks, then the touches of those that have none: most are found by the first
-- look, and who is done needs no other.
for s = 1, #KEYS - fresh do
  if left > 0 then
    left = left - look(s, marked, ids)
  end
end
if left > 0 then
  local members = cut(ARGV[6])
  for s = 1, #KEYS - fresh do
    look(s, touched, members)
  end
end

if foreign then
  local epochs = {}
  local run = redis.call('HGETALL', KEYS[3])
  for f = 1, #run, 2 do
    local of = began(run[f])
    epochs[of] = (epochs[of] or '') .. string.sub(run[f + 1], 9)
  end
  for of, begins in pairs(epochs) do
    for i = 1, n do
      if has(begins, ids[i]) then
        if of >= h.more[2] and begun[i] % 8 == 0 then
          begun[i] = begun[i] + 4
        elseif begun[i] < 248 then
          begun[i] = begun[i] + 8
        end
      end
    end
  end
  h.live = redis.call('EXISTS', KEYS[2])
else
  for i = 3, #fields do
    if h.more[i] ~= tonumber(ARGV[3 + 2 * i]) then
      h.live = 2
    end
  end
end
for i = 1, n do
  all[i] = string.char(marked[i] + 2 * touched[i] + begun[i])
end
h.found = table.concat(all)
return answer('found', now, h)
