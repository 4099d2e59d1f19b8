package torture_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/redisproxy"
)

// wire puts a proxy in front of the server that breaks some of the commands on their way.
func wire(rules ...redisproxy.Rule) func(*conductor, *servers, int) []*nemesis {
	return func(c *conductor, s *servers, _ int) []*nemesis {
		p := redisproxy.Start(c.t, s.redis.Addr)
		c.cfg.Redis = p.Addr()
		rules := slices.Clone(rules) // each composition has its own
		for i := range rules {
			rules[i].Seed = c.cfg.Seed + uint64(i)
			// not the commands with which a connection begins
			rules[i].Match = func(r redisproxy.Request) bool {
				switch r.Name() {
				case "HELLO", "CLIENT", "INFO", "SCRIPT", "TIME", "CONFIG":
					return false
				}
				return true
			}
		}
		return []*nemesis{{
			name: "wire", code: strikeWire, whole: true,
			begin: func(*conductor) { p.SetRules(rules...) },
			end: func(c *conductor) {
				p.SetRules()
				stats := p.Stats()
				c.counted["replies dropped"], c.counted["requests dropped"] = stats.RepliesDropped,
					stats.RequestsDropped
				c.counted["replies torn"] = stats.RepliesTorn
			},
		}}
	}
}

// freeze stops the server: its connections stay open, and nothing answers.
func freeze(_ *conductor, s *servers, times int) []*nemesis {
	return []*nemesis{{
		name: "frozen", code: strikeOutage, times: times, lasts: 1500 * time.Millisecond,
		begin: func(*conductor) { s.redis.Stop(1) }, end: func(*conductor) { s.redis.Cont(1) },
	}}
}

// dialing is how long go-redis refuses to dial a server that is back. Once as many dials as its
// pool has places have failed, it tries again every second. Until a try succeeds, all callers get
// the last error (tryDial).
const dialing = 1200 * time.Millisecond

// restart kills the server and starts it again. The server fsyncs its log before each reply.
func restart(c *conductor, s *servers, times int) []*nemesis {
	always := func() {
		c.must(s.client.ConfigSet(context.Background(), "appendfsync", "always").Err())
	}
	always()
	return []*nemesis{{
		name: "killed", code: strikeOutage, times: times, echo: dialing,
		begin: func(*conductor) {
			s.redis.Kill(1)
		}, end: func(*conductor) { s.redis.Start(1); always() },
	}}
}

// restartEverysec does the same with the usual log: while the log is being synced, a server keeps
// answered writes in its own memory.
func restartEverysec(_ *conductor, s *servers, times int) []*nemesis {
	return []*nemesis{{
		name: "killed", code: strikeAmnesia, times: times, echo: dialing,
		begin: func(*conductor) { s.redis.Kill(1) }, end: func(*conductor) { s.redis.Start(1) },
	}}
}

// restartEmpty does the same after the server was told to keep no data.
func restartEmpty(c *conductor, s *servers, times int) []*nemesis {
	keepNothing := func() {
		c.must(s.client.ConfigSet(context.Background(), "appendonly", "no").Err())
	}
	keepNothing()
	return []*nemesis{{
		name: "killed", code: strikeAmnesia, times: times, echo: dialing,
		begin: func(*conductor) { s.redis.Kill(1) },
		end:   func(*conductor) { s.redis.Start(1); keepNothing() },
	}}
}

// flush empties the server.
func flush(c *conductor, s *servers, times int) []*nemesis {
	return []*nemesis{{
		name: "FLUSHALL", code: strikeAmnesia, times: times,
		begin: func(*conductor) { c.must(s.client.FlushAll(c.t.Context()).Err()) },
	}}
}

// full makes the server take no new data for a while.
func full(c *conductor, s *servers, times int) []*nemesis {
	limit := func(bytes int) {
		c.must(s.client.ConfigSet(c.t.Context(), "maxmemory", strconv.Itoa(bytes)).Err())
	}
	c.must(s.client.ConfigSet(c.t.Context(), "maxmemory-policy", "noeviction").Err())
	return []*nemesis{{
		name: "full", code: strikeFull, times: times, lasts: time.Second,
		begin: func(*conductor) { limit(1) },
		end: func(c *conductor) {
			limit(0)
			for why, n := range c.refused {
				if strings.Contains(why, "full") {
					c.counted["refused as full"] = n
				}
			}
		},
	}}
}

// shiftClock moves the clock of a server of the row's own ahead, and behind, for half a second
// each. A claim whose lease ends too early loses its key. A claim that was made while the clock was
// ahead, and that nobody ends, holds its key until the clock is that far again. So at the end the
// clock stays ahead.
func shiftClock(_ *conductor, s *servers, times int) []*nemesis {
	server, turn := s.redis, 0
	if server == nil {
		server = s.postgres
	}
	return []*nemesis{{
		name: "clock shifted", code: strikeClock, times: times, lasts: 500 * time.Millisecond,
		begin: func(*conductor) {
			server.Shift(within(time.Now(),
				[]time.Duration{time.Minute, -time.Minute, time.Hour, -time.Hour}[turn%4]))
			turn++
		},
		end: func(*conductor) {
			if turn == times {
				server.Shift(time.Hour + time.Minute)
				return
			}
			server.Shift(0)
		},
	}}
}

// within reverses a shift that would lead to another day of UTC, with five minutes to spare. The
// windows of these tests are a day long. So the layout Compact keeps a record in the bucket of its
// day, and after a clock has come back from the next day it does not look there.
func within(now time.Time, shift time.Duration) time.Duration {
	day := func(t time.Time) int64 { return t.Unix() / int64(window/time.Second) }
	const spare = 5 * time.Minute
	if day(now.Add(shift-spare)) != day(now) || day(now.Add(shift+spare)) != day(now) {
		return -shift
	}
	return shift
}

// evict makes the server evict keys under load, as a server does whose policy is not noeviction.
func evict(c *conductor, s *servers, times int) []*nemesis {
	set := func(name, value string) { c.must(s.client.ConfigSet(c.t.Context(), name, value).Err()) }
	return []*nemesis{{
		name: "evicting", code: strikeAmnesia, times: times, lasts: time.Second,
		begin: func(c *conductor) {
			info, err := s.client.InfoMap(c.t.Context(), "memory").Result()
			c.must(err)
			used, err := strconv.Atoi(info["Memory"]["used_memory"])
			c.must(err)
			set("maxmemory-policy", "allkeys-random")
			set("maxmemory", strconv.Itoa(used-64<<10))
		},
		end: func(c *conductor) {
			set("maxmemory", "0")
			set("maxmemory-policy", "noeviction")
			info, err := s.client.InfoMap(c.t.Context(), "stats").Result()
			c.must(err)
			c.counted["evicted"], err = strconv.Atoi(info["Stats"]["evicted_keys"])
			c.must(err)
		},
	}}
}
