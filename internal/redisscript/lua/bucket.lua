-- Second prelude, of the scripts that know buckets: sets of digests, one per shard and
-- generation, that hold the finished keys of the layouts Compact and Mixed. Their keys
-- follow KEYS[1], one generation after the other, and share its slot. Without them the
-- script is that of the layouts with a record per key, and nothing here costs anything.
--
-- The arguments of the buckets stand behind the script's own:
--
--   +0  member: the digest
--   +1  generation of the first bucket
--   +2  length of a generation in ms, which is the window
--   +3  skew: ms by which the clocks of two servers may differ
--
-- view returns nil without buckets, else {first, window, skew, member}.
-- seen returns nil, or a record that stands for membership, or nil and what the script
-- must return: an error, or {'edge', now in ms, 0, ''} when the buckets that were named
-- do not cover the window before the server's own now. Somebody else may have added to
-- one that was not: only a view that covers it tells what is not there.
-- add makes the digest a member in generation into, and gives that bucket its end, and
-- the one before it, should somebody have made that without.
-- remove takes the digest out of all buckets.

local view, seen, add, remove

if #KEYS == 1 then
  view = function() end
  seen = view
else
  view = function(at)
    return {
      member = ARGV[at], first = tonumber(ARGV[at + 1]),
      window = tonumber(ARGV[at + 2]), skew = tonumber(ARGV[at + 3]),
    }
  end

  seen = function(b, now)
    -- The lower bound needs no margin: what a server counts as older than its window may
    -- be forgotten. Above, a server that is ahead may have let somebody write already.
    if now < (b.first + 1) * b.window or now + b.skew >= (b.first + #KEYS - 1) * b.window then
      return nil, {'edge', now, 0, ''}
    end
    for i = #KEYS, 2, -1 do
      local found = redis.pcall('SISMEMBER', KEYS[i], b.member)
      if type(found) == 'table' then
        return nil, found
      end
      if found == 1 then
        local r = {
          state = SUCCEEDED, half = string.rep('\0', 8), fence = 0, attempt = 1, span = now, floor = 0,
          fingerprint = '', origin = '', label = '', steps = '', member = true,
        }
        r.raw, r.left = encode(r), (b.first + i) * b.window + b.skew - now
        return r, nil
      end
    end
    return nil, nil
  end

  -- finite gives bucket KEYS[i] its end, unless it has one. It outlives every view that
  -- names it, on whatever server's clock.
  local function finite(b, i)
    if redis.call('PTTL', KEYS[i]) == -1 then
      redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', (b.first + i) * b.window + 2 * b.skew))
    end
  end

  add = function(b, into)
    local i = into - b.first + 2
    redis.call('SADD', KEYS[i], b.member)
    finite(b, i)
    if i > 2 then
      finite(b, i - 1)
    end
  end

  remove = function(b)
    for i = 2, #KEYS do
      if redis.call('SREM', KEYS[i], b.member) == 1 and redis.call('EXISTS', KEYS[i]) == 0 then
        -- A bucket that runs empty is gone, and its end with it. Others remember that it
        -- has one, and would make it anew without: so it is kept, by a member of no key.
        redis.call('SADD', KEYS[i], '0')
        finite(b, i)
      end
    end
  end
end
