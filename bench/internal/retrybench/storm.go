// Package retrybench shows what package retry saves a server. Its simulations run the code of
// package retry against a model of a server, in a bubble of testing/synctest. So minutes of a
// thousand clients take a second, and no other program affects the result. Only tests have fake
// time. Therefore the simulations are a test, which writes its rows to a file, and the suite runs
// that test.
package retrybench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
)

// Suite shows what package retry saves a server.
var Suite = harness.Suite{
	Area: "retry", About: "what retries cost a server that is down: a thousand clients, simulated",
	Full: harness.Scale{Rounds: 5}, Quick: harness.Scale{Rounds: 1},
	Open: func(_ context.Context, o harness.Options, b *harness.Bench) {
		b.Servers = []*harness.Server{{Kind: "a simulation in fake time"}}
		b.Groups = []harness.Group{{Title: "simulations",
			Open: func(ctx context.Context, s *harness.Setup) {
				s.Rows = simulations(ctx, min(o.Rounds, 5))
			}}}
	},
}

// simulations runs the test, which fails if a goal is missed.
func simulations(ctx context.Context, rounds int) (rows []harness.Row) {
	root, dir := must.Get(server.Root()), must.Get(os.MkdirTemp("", "onceward-bench"))
	defer func() { must.Do(os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "storm.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=10m", "-run=^TestStorm$",
		"./internal/retrybench", "-args", "-storm="+file, "-rounds="+strconv.Itoa(rounds))
	cmd.Dir = filepath.Join(root, "bench")
	out, err := cmd.CombinedOutput()
	must.True(err == nil, "the simulations: %w\n%s", err, out)
	must.Do(harness.ReadJSON(file, &rows))
	return rows
}
