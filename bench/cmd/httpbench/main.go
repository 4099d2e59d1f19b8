// Command httpbench shows what package retry spares a server: simulations of a thousand clients,
// in fake time, with the code that is shipped (bench/internal/web).
//
//	httpbench                                   run and print (from the folder bench)
//	httpbench -retry results/retry.json         and write results, plots and a report
//	httpbench -render results/retry.json        plots and report of earlier results
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/web"
)

type options struct {
	retry, render string
	rounds        int
	quick         bool
}

func main() {
	o := options{}
	flags := flag.NewFlagSet("httpbench", flag.ExitOnError)
	flags.StringVar(&o.retry, "retry", "", "write the results of the simulations there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "run nothing: draw plots and report of this results file again")
	flags.IntVar(&o.rounds, "rounds", 5, "runs of each simulation")
	flags.BoolVar(&o.quick, "quick", false, "one run")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if o.quick {
		o.rounds = 1
	}
	harness.Main("httpbench", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	if o.render != "" {
		results, err := harness.Read(o.render)
		if err != nil {
			return err
		}
		return report.Write(results, o.render)
	}
	if o.rounds < 1 {
		return errors.New("-rounds must be positive")
	}
	rounds, err := simulate(ctx, o.rounds)
	if err != nil {
		return err
	}
	rows := web.Rows(rounds)
	for _, row := range rows {
		if row.Against != "" {
			fmt.Printf("%-88s %9.4g %-10s %s: %.4g; %s\n", row.Name, row.Value, row.Unit, row.Against, row.AgainstValue, row.Goal)
		}
	}
	if o.retry == "" {
		return nil
	}
	results := harness.Results{
		Area: "retry", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: harness.Machine() + ", a simulation in fake time", Versions: harness.Versions(nil), Rows: rows,
	}
	if err := results.Write(o.retry); err != nil {
		return err
	}
	return report.Write(results, o.retry)
}

// simulate runs the simulations. Fake time is to be had in tests only (testing/synctest), so they are
// one, which writes down what it saw; it fails where a goal is missed.
func simulate(ctx context.Context, rounds int) ([]web.Round, error) {
	dir, err := os.MkdirTemp("", "httpbench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "storm.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=10m", "-run=^TestStorm$", "./internal/web",
		"-args", "-storm="+file, "-rounds="+strconv.Itoa(rounds))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the simulations: %w\n%s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []web.Round
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(all) != rounds {
		return nil, fmt.Errorf("%d rounds of %d: was the test skipped?", len(all), rounds)
	}
	return all, nil
}
