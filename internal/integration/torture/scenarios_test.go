package torture_test

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/onceward/onceward/internal/redisproxy"
)

// size says how many messages, deliveries of each, and strikes a row has in a profile.
type size struct {
	messages, times int
	strikes         int
}

// tear cuts some replies off after a number of bytes.
func tear(bytes int) redisproxy.Rule {
	return redisproxy.Rule{Action: redisproxy.TearReply, Bytes: bytes, Probability: 0.002}
}

// row is a scenario.
type row struct {
	id, name     string
	compositions []string
	smoke        []string // of them, those that smoke has
	soak         []string // and those that a soak has
	fates        fates
	nemeses      func(c *conductor, s *servers, strikes int) []*nemesis
	sizes        map[string]size // by profile; none where it is left out
	lease        time.Duration   // default: defaultLease
	allowed      map[string][]reason
	checkResult  porcupine.CheckResult // default: Ok
	counts       []string              // faults of which there must be some
	none         []string              // faults of which there must be none
	capacity     int                   // deliveries that a process has at a time, if more than 8
	private      bool                  // it has a PostgreSQL of its own
	clock        bool                  // it has servers of its own, whose clock can be shifted
	pair         bool                  // it has a Redis with a replica
	breaksRedis  bool                  // it has a Redis of its own
	// a worker that cannot open its store ends, and is started again
	bearsErrors bool
	quota       func(p point) bool // points of which at least one must have been met
}

// either is the checkResult of a row in which the server may or may not lose data.
const either = porcupine.CheckResult("either")

// tolerated returns the reasons for second effects that a row allows, by level. It adds the reasons
// of a busy machine, which may let neither a process nor a server run for a third of a lease.
func tolerated(claimed, asked []reason) map[string][]reason {
	return map[string][]reason{
		"claimed": append([]reason{byStall, byOutage}, claimed...),
		"asked":   append([]reason{byStall}, asked...), "atomic": nil,
	}
}

var (
	onRedis        = []string{"full", "seen", "compact"}
	inTransactions = []string{"postgres", "postgres simple", "postgres exec", "postgres describe",
		"postgres uncached", "mariadb"}
	anywhere = append(append([]string{}, onRedis...), "asked", "layered",
		"postgres", "mariadb")
)

var rows = []row{
	{
		id: "X01", name: "nothing", compositions: anywhere,
		smoke: []string{"full", "compact", "postgres"}, soak: []string{"full", "compact"},
		sizes: map[string]size{
			"smoke": {messages: 300, times: 3}, "ci": {messages: 500, times: 3},
			"full": {messages: 100_000, times: 3}, "soak": {messages: 20_000, times: 4},
		},
		allowed: tolerated(nil, nil),
	},
	{
		id: "X02-X11", name: "SIGKILL of itself at each of the points C1 to C10",
		compositions: anywhere, smoke: []string{"full", "seen", "asked", "layered", "postgres"},
		fates: fates{crashes, 25},
		soak:  []string{"full", "asked", "layered"},
		sizes: map[string]size{
			"smoke": {messages: 750, times: 2}, "ci": {messages: 750, times: 2},
			"soak": {messages: 3000, times: 2}, "full": {messages: 20_000, times: 2},
		},
		allowed: tolerated([]reason{byDeath}, nil),
		quota:   func(p point) bool { return !p.pauses() },
	},
	{
		id: "X16", name: "SIGSTOP of itself for two leases, before, in and after the effect",
		compositions: anywhere, smoke: []string{"full", "postgres"}, fates: fates{pauses, 25},
		sizes: map[string]size{"smoke": {messages: 150, times: 3},
			"ci": {messages: 200, times: 3}, "full": {messages: 20_000, times: 3}},
		allowed: tolerated([]reason{byPause}, []reason{byPause}),
		quota:   point.pauses,
	},
	{
		id: "X12", name: "1 % of the replies dropped", compositions: onRedis,
		smoke: []string{"full"}, soak: []string{"full"},
		nemeses: wire(redisproxy.Rule{Action: redisproxy.DropReply, Probability: 0.01}),
		counts:  []string{"replies dropped"},
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2}, "ci": {messages: 600, times: 2},
			"soak": {messages: 6000, times: 3}, "full": {messages: 50_000, times: 3},
		},
		allowed: tolerated([]reason{byOutage}, nil),
	},
	{
		id: "X13", name: "1 % of the replies swallowed, connections stay open",
		compositions: onRedis, smoke: []string{"seen"},
		nemeses: wire(redisproxy.Rule{Action: redisproxy.DropReply, Hang: true, Probability: 0.01}),
		counts:  []string{"replies dropped"},
		sizes: map[string]size{"smoke": {messages: 300, times: 2},
			"ci": {messages: 300, times: 2}, "full": {messages: 50_000, times: 3}},
		allowed: tolerated([]reason{byOutage}, nil),
	},
	{
		id: "X14-X15", name: "1 % of the requests dropped, and of the replies torn",
		compositions: onRedis, smoke: []string{"compact"},
		nemeses: wire(redisproxy.Rule{Action: redisproxy.DropRequest, Probability: 0.01},
			tear(1), tear(2), tear(3), tear(5), tear(9), tear(40)),
		counts: []string{"requests dropped", "replies torn"},
		sizes: map[string]size{"smoke": {messages: 500, times: 2},
			"ci": {messages: 600, times: 2}, "full": {messages: 50_000, times: 3}},
		allowed: tolerated([]reason{byOutage}, nil),
	},
	{
		id: "X17", name: "Redis stopped for 1.5 s", compositions: onRedis, smoke: []string{"full"},
		nemeses: freeze, counts: []string{"frozen"}, soak: []string{"full"},
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 1},
			"ci":    {messages: 500, times: 2, strikes: 1},
			"soak":  {messages: 6000, times: 3, strikes: 3},
			"full":  {messages: 50_000, times: 3, strikes: 50},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byOutage}, nil), bearsErrors: true,
	},
	{
		id: "X18", name: "Redis killed and started, appendfsync always", compositions: onRedis,
		smoke: []string{"compact"}, nemeses: restart, counts: []string{"killed"},
		soak: []string{"full", "compact"},
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"soak":  {messages: 6000, times: 4, strikes: 20},
			"full":  {messages: 50_000, times: 3, strikes: 100},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byOutage}, nil), bearsErrors: true,
	},
	{
		id: "X18e", name: "the same, appendfsync everysec", compositions: []string{"full"},
		nemeses: restartEverysec, counts: []string{"killed"},
		soak: []string{"full"}, checkResult: either,
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"soak":  {messages: 6000, times: 4, strikes: 20},
			"full":  {messages: 50_000, times: 3, strikes: 100},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byOutage, byAmnesia}, nil), bearsErrors: true,
	},
	{
		id: "X19", name: "Redis killed and started, without persistence",
		compositions: []string{"full", "seen"}, smoke: []string{"seen"},
		nemeses: restartEmpty, counts: []string{"killed"}, checkResult: porcupine.Illegal,
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"full":  {messages: 50_000, times: 3, strikes: 50},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byOutage, byAmnesia}, nil), bearsErrors: true,
	},
	{
		id: "X20", name: "FLUSHALL", compositions: []string{"full", "seen", "layered"},
		smoke:   []string{"full"},
		nemeses: flush, counts: []string{"FLUSHALL"}, checkResult: porcupine.Illegal,
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 2},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"full":  {messages: 50_000, times: 3, strikes: 50},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byAmnesia}, nil),
	},
	{
		id: "X25", name: "Redis full for 1 s, noeviction", compositions: onRedis,
		smoke: []string{"full"}, nemeses: full, counts: []string{"full", "refused as full"},
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 1},
			"ci":    {messages: 500, times: 2, strikes: 1},
			"full":  {messages: 200_000, times: 3, strikes: 50},
		},
		breaksRedis: true,
		allowed:     tolerated(nil, nil),
	},
	{
		id: "X40", name: "processes killed and stopped, Redis stopped and killed",
		compositions: []string{"full", "compact", "asked"}, smoke: []string{"compact"},
		fates: fates{slices.Concat(crashes, pauses), 40}, counts: []string{"frozen", "killed"},
		nemeses: func(c *conductor, s *servers, strikes int) []*nemesis {
			return slices.Concat(restart(c, s, strikes), freeze(c, s, strikes))
		},
		sizes: map[string]size{
			"smoke": {messages: 500, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 1},
			"soak":  {messages: 3000, times: 3, strikes: 6},
			"full":  {messages: 100_000, times: 3, strikes: 100},
		},
		breaksRedis: true,
		allowed:     tolerated([]reason{byDeath, byPause, byOutage}, []reason{byPause}),
		bearsErrors: true,
	},
	{
		id: "X28", name: "5 % of the COMMITs cut", compositions: inTransactions,
		nemeses: cutCommits, soak: []string{"postgres"},
		counts: []string{"COMMIT not delivered", "COMMIT not answered", "COMMIT late"},
		sizes: map[string]size{
			"smoke": {messages: 300, times: 2}, "ci": {messages: 500, times: 2},
			"soak": {messages: 1500, times: 2}, "full": {messages: 20_000, times: 2},
		},
		allowed: tolerated(nil, nil),
	},
	{
		id: "X30", name: "database sessions killed",
		compositions: []string{"postgres", "mariadb", "layered"}, smoke: []string{"mariadb"},
		nemeses: killBackends, counts: []string{"backends killed"},
		sizes: map[string]size{
			"smoke": {messages: 300, times: 2, strikes: 3},
			"ci":    {messages: 400, times: 2, strikes: 5},
			"full":  {messages: 20_000, times: 2, strikes: 100},
		},
		allowed: tolerated([]reason{byOutage}, nil),
	},
	{
		id: "X30r", name: "PostgreSQL killed, or stopped at once, and started",
		compositions: []string{"postgres"}, private: true, nemeses: restartPostgres,
		counts: []string{"killed"},
		sizes: map[string]size{
			"smoke": {messages: 300, times: 2, strikes: 1},
			"ci":    {messages: 400, times: 2, strikes: 2},
			"soak":  {messages: 1500, times: 2, strikes: 4},
			"full":  {messages: 20_000, times: 2, strikes: 100},
		},
		allowed: tolerated(nil, nil), bearsErrors: true,
	},
	{
		id: "X22", name: "Redis primary killed, replica promoted",
		compositions: []string{"full", "seen"}, smoke: []string{"full"},
		pair: true, nemeses: promote,
		counts: []string{"promoted"}, checkResult: either,
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"soak":  {messages: 5000, times: 4, strikes: 6},
			"full":  {messages: 50_000, times: 3, strikes: 100},
		},
		allowed: tolerated([]reason{byOutage, byAmnesia}, nil), bearsErrors: true,
	},
	{
		id: "X22w", name: "the same, WAIT 1", compositions: []string{"waited"}, pair: true,
		nemeses: promoteWaited, counts: []string{"promoted"},
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"soak":  {messages: 3000, times: 3, strikes: 3},
			"full":  {messages: 50_000, times: 3, strikes: 100},
		},
		allowed: tolerated([]reason{byOutage}, nil), bearsErrors: true,
	},
	{
		id: "X21", name: "keys evicted for 1 s", compositions: []string{"full", "seen"},
		smoke: []string{"seen"}, nemeses: evict, counts: []string{"evicting", "evicted"},
		checkResult: porcupine.Illegal,
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 2},
			"full":  {messages: 50_000, times: 3, strikes: 50},
		},
		breaksRedis: true, allowed: tolerated([]reason{byOutage, byAmnesia}, nil),
		bearsErrors: true,
	},
	{
		id: "X23", name: "Cluster master stopped until another is promoted, and woken",
		compositions: []string{"cluster"}, nemeses: freezeMaster,
		counts: []string{"master frozen", "promoted"}, checkResult: either,
		// With a lease of 600 ms, calls have 200 ms. On a busy machine two workers then got no
		// answer until their leases had ended, while the probes of all masters were answered, so
		// nothing said why.
		lease: 3 * time.Second,
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 1},
			"ci":    {messages: 600, times: 2, strikes: 1},
			"full":  {messages: 50_000, times: 3, strikes: 50},
		},
		allowed: tolerated([]reason{byOutage, byAmnesia}, nil), bearsErrors: true,
	},
	{
		id: "X24", name: "slots move between masters", compositions: []string{"cluster"},
		nemeses: moveSlots, counts: []string{"slots moved"},
		// Servers that move hundreds of slots answer late on a busy machine. With a short lease the
		// breaker would be open until the lease has ended.
		lease: 3 * time.Second,
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2},
			"ci":    {messages: 600, times: 2}, "full": {messages: 100_000, times: 3},
		},
		allowed: tolerated(nil, nil),
	},
	{
		id: "X26", name: "server's clock ahead or behind by a minute or an hour for 0.5 s",
		compositions: append(slices.Clone(onRedis), "postgres"),
		smoke:        []string{"compact", "postgres"},
		clock:        true, nemeses: shiftClock, counts: []string{"clock shifted"},
		checkResult: either,
		soak:        []string{"full"},
		sizes: map[string]size{
			"smoke": {messages: 400, times: 2, strikes: 4},
			"ci":    {messages: 600, times: 2, strikes: 4},
			"soak":  {messages: 3000, times: 3, strikes: 8},
			"full":  {messages: 10_000, times: 3, strikes: 40},
		},
		allowed: tolerated([]reason{byOutage, byClock}, nil),
	},
	{
		id: "X29", name: "batches of up to 200 in any order",
		compositions: []string{"postgres batches", "mariadb batches"}, nemeses: deadlocks,
		none: []string{"deadlocks"}, capacity: 200,
		sizes: map[string]size{
			"smoke": {messages: 800, times: 2},
			"ci":    {messages: 1500, times: 2}, "full": {messages: 200_000, times: 2},
		},
		allowed: tolerated(nil, nil),
	},
	{
		id: "X34", name: "fifty keys, everybody at once", compositions: anywhere, capacity: 40,
		smoke: []string{"full", "compact", "layered", "postgres"},
		sizes: map[string]size{
			"smoke": {messages: 50, times: 20},
			"ci":    {messages: 50, times: 40}, "full": {messages: 50, times: 10_000},
		},
		allowed: tolerated(nil, nil),
	},
}
