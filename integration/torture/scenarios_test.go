package torture_test

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// size is how much there is of a row in a profile.
type size struct {
	messages, times int
	strikes         int
}

// row is a scenario.
type row struct {
	id, name     string
	compositions []string
	smoke        []string // of them, those that smoke has
	fates        fates
	nemeses      func(c *conductor, s *servers, strikes int) []*nemesis
	sizes        map[string]size // by profile; none where it is left out
	lease        time.Duration   // default: 600 ms
	allowed      map[string][]reason
	verdict      porcupine.CheckResult // default: Ok
	bearsErrors  bool                  // a worker that cannot open its store ends, and is started again
	quota        func(p point) bool    // points of which at least one must have been met
}

// tolerated are the reasons for second effects, by level. A machine that does not let a process, or a server,
// run for a third of a lease is everywhere: two cores, and other tests.
func tolerated(claimed, asked []reason) map[string][]reason {
	return map[string][]reason{
		"claimed": append([]reason{byStall, byOutage}, claimed...), "asked": append([]reason{byStall}, asked...), "atomic": nil,
	}
}

var (
	onRedis  = []string{"rich", "seen", "compact", "mixed"}
	anywhere = append(append([]string{}, onRedis...), "asked", "layered", "postgres", "mariadb")
)

var rows = []row{
	{
		id: "X01", name: "nothing", compositions: anywhere, smoke: []string{"rich", "compact", "postgres"},
		sizes:   map[string]size{"smoke": {messages: 300, times: 3}, "ci": {messages: 1000, times: 3}, "full": {messages: 100_000, times: 3}},
		allowed: tolerated(nil, nil),
	},
	{
		id: "X02-X11", name: "SIGKILL of itself at each of the points C1 to C10", compositions: anywhere, smoke: []string{"rich", "asked", "layered", "postgres"}, fates: fates{crashes, 25},
		sizes:   map[string]size{"smoke": {messages: 750, times: 2}, "ci": {messages: 1250, times: 2}, "full": {messages: 20_000, times: 2}},
		allowed: tolerated([]reason{byDeath}, nil),
		quota:   func(p point) bool { return !p.pauses() },
	},
	{
		id: "X16", name: "SIGSTOP of itself for two leases, before, in and after the effect", compositions: anywhere, smoke: []string{"rich", "postgres"}, fates: fates{pauses, 25},
		sizes:   map[string]size{"smoke": {messages: 150, times: 3}, "ci": {messages: 400, times: 3}, "full": {messages: 20_000, times: 3}},
		allowed: tolerated([]reason{byPause}, []reason{byPause}),
		quota:   point.pauses,
	},
}
