#!lua flags=no-writes
-- own_ask looks for ids in sets of a partition. Who does not hold the partition also looks
-- for them in run, in the same script: a begin and its mark change places in one turn, and
-- whoever looks first in one and then in the other may miss both. That holds only while
-- the newest fresh set is among those that are looked in.
--
-- KEYS     head; own and run when foreign; fresh sets; buckets
-- ARGV     1 epoch, the owner's or as it was read  2 1 when foreign  3 g and 4 the number
--          of its newest fresh set, as they were read, when foreign
--          5 number of ids  6 number of fresh sets; then the member done of each id, and
--          the member touched of each; when foreign the ids, of 8 bytes each, as one; then
--          for each bucket which ids to look for in it: their indexes, from 1, with commas
-- Returns  as own.lua says, where answer is one of
--          found    with a byte for each id: 1 done, 2 touched and not done, 4 begun in
--                   this epoch, and 8 for each other epoch in which it was begun, up to 31
--          stale    the epoch is another, or when foreign the newest fresh set: read head
--          amnesia  there is no head, or it says lost

local n, sets, foreign = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[2] == '1'
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

local marked, touched, begun, all = {}, {}, {}, {}
for i = 1, n do
  marked[i], touched[i], begun[i], all[i] = 0, 0, 0, i
end
local fresh, first = foreign and 3 or 1, 6 + 2 * n + (foreign and 1 or 0) -- each before the first
local left = n -- ids without a mark

-- look notes in found which of the ids in list that have no mark are in a set, and returns
-- how many. Their members stand in ARGV after at, and need no copying before one is found.
local function look(key, list, found, at)
  local hits = 0
  for from = 1, #list, chunk do
    local to = math.min(from + chunk - 1, #list)
    local ids, before, reply = list, from - 1, nil
    if list == all and left == n then
      reply = redis.call('SMISMEMBER', key, unpack(ARGV, at + from, at + to))
    else
      local members = {}
      ids, before = {}, 0
      for i = from, to do
        if marked[list[i]] == 0 then
          ids[#ids + 1] = list[i]
          members[#members + 1] = ARGV[at + list[i]]
        end
      end
      reply = #ids > 0 and redis.call('SMISMEMBER', key, unpack(members)) or {}
    end
    for i = 1, #reply do
      local id = ids[before + i]
      if reply[i] == 1 and found[id] == 0 then
        found[id] = 1
        hits = hits + 1
      end
    end
  end
  return hits
end

-- First the marks, then the touches of those that have none: most are found by the first
-- look, and who is done needs no other.
for _, round in ipairs({{marked, 6}, {touched, 6 + n}}) do
  for s = 1, #KEYS - fresh do
    local list = all
    if s > sets then
      list = {}
      for index in string.gmatch(ARGV[first + s - sets], '%d+') do
        list[#list + 1] = tonumber(index)
      end
    end
    if left > 0 then
      local hits = look(KEYS[fresh + s], list, round[1], round[2])
      if round[1] == marked then
        left = left - hits
      end
    end
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
      if has(ids, string.sub(ARGV[first], 8 * i - 7, 8 * i)) then
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
  all[i] = string.char(marked[i] + 2 * touched[i] + begun[i])
end
h.found = table.concat(all)
return answer('found', now, h)
