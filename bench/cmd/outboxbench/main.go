// Command outboxbench measures the relay of package outbox beside the recipe that most articles
// have and beside a bare read of the table, on PostgreSQL: all in one process and one run, in
// turn, because machines are noisy and only ratios within a round count.
//
//	outboxbench                                 everything, on a PostgreSQL of its own (from the folder bench)
//	outboxbench -quick                          less exactly
//	outboxbench -postgres postgres://...        on a server that runs already: tables bench_outbox_* are made there, and dropped
//	outboxbench -run 1.ms                       only what matches
//	outboxbench -out results/outbox.json        and write results, plots and a report
//	outboxbench -render results/outbox.json     plots and report of earlier results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/relays"
	"github.com/onceward/onceward/bench/internal/report"
)

type options struct {
	postgres, run, out, render string
	rounds, messages, wakeUps  int
	budget                     time.Duration
	quick                      bool
}

func main() {
	o := parse(os.Args[1:])
	harness.Main("outboxbench", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) options {
	o := options{}
	flags := flag.NewFlagSet("outboxbench", flag.ExitOnError)
	flags.StringVar(&o.postgres, "postgres", relays.Private, "private: a server of its own; or a postgres:// URL")
	flags.StringVar(&o.run, "run", "", "only workloads whose title matches this regular expression")
	flags.StringVar(&o.out, "out", "", "write the results there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "measure nothing: draw plots and report of this results file again")
	flags.IntVar(&o.rounds, "rounds", 7, "interleaved rounds of each workload, after one that warms up")
	flags.IntVar(&o.messages, "messages", 150_000, "most messages of one timing")
	flags.IntVar(&o.wakeUps, "wakeups", 101, "messages whose wake-up is looked at")
	flags.DurationVar(&o.budget, "time", 700*time.Millisecond, "about how long one timing takes, as far as -messages allows")
	flags.BoolVar(&o.quick, "quick", false, "three short rounds: figures for orientation")
	_ = flags.Parse(args) // ExitOnError
	if o.quick {
		o.rounds, o.budget, o.wakeUps = 3, 300*time.Millisecond, 21
	}
	return o
}

func (o options) check() error {
	switch {
	case o.rounds < 1 || o.messages < 1 || o.wakeUps < 1 || o.budget <= 0:
		return errors.New("-rounds, -messages, -wakeups and -time must be positive")
	case o.run != "" && o.out != "":
		if _, err := os.Stat(o.out); err == nil {
			return fmt.Errorf("-run with -out would replace the full run in %s: name another file", o.out)
		}
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	if o.render != "" {
		results, err := harness.Read(o.render)
		if err != nil {
			return err
		}
		return report.Write(results, o.render)
	}
	if err := o.check(); err != nil {
		return err
	}
	match, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	env := &relays.Env{WakeUps: o.wakeUps}
	groups := slices.DeleteFunc(env.Groups(), func(g harness.Group) bool { return !match.MatchString(g.Title) })
	if len(groups) == 0 {
		return fmt.Errorf("no workload matches -run %q", o.run)
	}
	if env.Postgres, err = relays.Open(ctx, o.postgres); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Postgres.Close()) }()
	r := harness.Runner{Rounds: o.rounds, MaxKeys: o.messages, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	rows, err := r.Run(ctx, groups)
	if err != nil || o.out == "" {
		return err
	}
	results := harness.Results{
		Area: "outbox", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: harness.Machine() + ", " + env.Postgres.Kind, Versions: env.Versions(), Rows: rows,
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}
