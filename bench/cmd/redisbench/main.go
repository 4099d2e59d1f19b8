// Command redisbench measures the Redis path beside its limits and beside what else people
// use, in one run: every round times each side once, in turn, and only ratios within a
// round count, because machines are noisy.
//
//	redisbench                                        everything, on a redis-server of its own
//	redisbench -quick -run 'batch 256'                some of it, less exactly
//	redisbench -redis embedded                        without a redis-server
//	redisbench -redis 127.0.0.1:6379                  on a Redis that others use: keys expire within minutes, a record of each layout's settings stays
//	redisbench -out results/redis.json                and write results, plots and a report
//	redisbench -render results/redis.json             plots and report of earlier results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/workload"
)

type options struct {
	redis, run, out, render string
	port, rounds, keys      int
	budget                  time.Duration
	scale                   workload.Scale
	list                    bool
}

func main() {
	o := options{}
	flags := flag.NewFlagSet("redisbench", flag.ExitOnError)
	flags.StringVar(&o.redis, "redis", server.Private, "private: a redis-server of its own; embedded: miniredis; or host:port")
	flags.IntVar(&o.port, "port", 0, "port of the private server; 0: a free one")
	flags.StringVar(&o.run, "run", "", "only workloads whose title matches this regular expression")
	flags.StringVar(&o.out, "out", "", "write the results there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "measure nothing: draw plots and report of this results file again")
	flags.IntVar(&o.rounds, "rounds", 7, "interleaved rounds of each workload, after one that warms up")
	flags.IntVar(&o.keys, "keys", 50_000, "most keys of one timing")
	flags.DurationVar(&o.budget, "time", 150*time.Millisecond, "about how long one timing takes, as far as -keys allows")
	flags.BoolVar(&o.scale.Quick, "quick", false, "fewer workloads in three short rounds: figures for orientation, in less than a minute")
	flags.BoolVar(&o.scale.Long, "long", false, "remember ten million keys as well: minutes and gigabytes more")
	flags.BoolVar(&o.list, "list", false, "print the workloads and end")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if o.scale.Quick {
		o.rounds, o.budget = 3, 12*time.Millisecond
	}
	harness.Main("redisbench", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) (err error) {
	if o.render != "" {
		results, err := harness.Read(o.render)
		if err != nil {
			return err
		}
		return report.Write(results, o.render)
	}
	match, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.list {
		for _, g := range workload.NewEnv(nil, o.scale).Groups() {
			fmt.Println(g.Title)
		}
		return nil
	}
	s, err := server.Open(ctx, o.redis, o.port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	results, err := measure(ctx, o, s, match)
	if err != nil || o.out == "" {
		return err
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}

func (o options) check() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds is %d: at least one is needed", o.rounds)
	case o.keys < 1:
		return fmt.Errorf("-keys is %d: at least one is needed", o.keys)
	case o.budget <= 0:
		return fmt.Errorf("-time is %v: it must be positive", o.budget)
	case o.run != "" && o.out != "":
		if _, err := os.Stat(o.out); err == nil {
			return fmt.Errorf("-run with -out would replace the full run in %s: name another file", o.out)
		}
	}
	return nil
}

func measure(ctx context.Context, o options, s *server.Server, match *regexp.Regexp) (harness.Results, error) {
	env := workload.NewEnv(s, o.scale)
	env.Budget = o.budget
	groups, leftOut := env.Choose(env.Groups(), match)
	if len(groups) == 0 {
		return harness.Results{}, fmt.Errorf("no workload matches -run %q: see -list", o.run)
	}
	versions, err := env.Versions(ctx)
	if err != nil {
		return harness.Results{}, err
	}
	r := harness.Runner{Rounds: o.rounds, MaxKeys: o.keys, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	if !s.Embedded {
		r.Meter.ServerCPU = s.CPU
	}
	if s.Own {
		r.Between = s.Empty
	}
	rows, err := r.Run(ctx, groups)
	for _, what := range leftOut {
		fmt.Println("left out:", what)
	}
	return harness.Results{
		Area: "redis", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly), Machine: harness.Machine() + ", " + s.Kind(),
		Versions: versions, Rows: rows, LeftOut: leftOut,
	}, err
}
