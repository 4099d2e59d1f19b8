// Command bloombench measures package bloom beside what people use in its place, and what is
// built on it beside what it replaces: all in one process and one run, in turn, because machines are
// noisy and only ratios within a round count.
//
//	bloombench                               everything, on a Redis and a PostgreSQL of its own
//	bloombench -postgres none                without what is layered over SQL
//	bloombench -redis none                   the filter alone
//	bloombench -quick -run 'new ids'         some of it, less exactly
//	bloombench -run '^owned, 0 ' -cpuprofile cpu.out     where the time goes: go tool pprof -tagfocus 'owned$' cpu.out
//	bloombench -out results/bloom.json       and write results, plots and a report
//	bloombench -render results/bloom.json    plots and report of earlier results
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

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/front"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

// none is the address of a server that does not take part.
const none = "none"

type options struct {
	run, out, render string
	redis, postgres  string
	cpuProfile       string
	memProfile       string
	rounds           int
	budget           time.Duration
	quick, list      bool
}

func main() {
	o := parse(os.Args[1:])
	harness.Main("bloombench", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) options {
	o := options{}
	flags := flag.NewFlagSet("bloombench", flag.ExitOnError)
	flags.StringVar(&o.redis, "redis", server.Durable, "durable: a redis-server of its own with an append-only file, as docs/redis.md asks for; private: one without; none; or host:port")
	flags.StringVar(&o.postgres, "postgres", database.Private, "private: a PostgreSQL of its own; none; or the URL of one")
	flags.StringVar(&o.run, "run", "", "only workloads whose title matches this regular expression")
	flags.StringVar(&o.out, "out", "", "write the results there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "measure nothing: draw plots and report of this results file again")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile there, with the label \"side\"")
	flags.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations there, of all sides")
	flags.IntVar(&o.rounds, "rounds", 5, "interleaved rounds of each workload, after one that warms up")
	flags.DurationVar(&o.budget, "time", 150*time.Millisecond, "about how long one timing takes")
	flags.BoolVar(&o.quick, "quick", false, "small filters in three short rounds, without points between others: figures for orientation")
	flags.BoolVar(&o.list, "list", false, "print the workloads and end")
	_ = flags.Parse(args) // ExitOnError
	if o.quick {
		o.rounds, o.budget = 3, 20*time.Millisecond
	}
	return o
}

func (o options) env() *front.Env {
	if o.quick {
		return &front.Env{Sizes: []int{20_000, 200_000}, Budget: o.budget, Rounds: o.rounds, Hits: 100, FreshSets: 1, Marks: 200_000}
	}
	return &front.Env{Sizes: []int{100_000, 1_000_000, 10_000_000}, Budget: o.budget, Rounds: o.rounds, Hits: 1000, FreshSets: 4, Marks: 10_000_000}
}

func (o options) check() error {
	if o.rounds < 1 || o.budget <= 0 {
		return errors.New("-rounds and -time must be positive")
	}
	if o.run != "" && o.out != "" {
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
	env := o.env()
	shut, err := o.open(ctx, env)
	defer func() { err = errors.Join(err, shut()) }()
	if err != nil {
		return err
	}
	groups := slices.DeleteFunc(env.Groups(), func(g harness.Group) bool { return !match.MatchString(g.Title) || g.Detail && o.quick })
	switch {
	case len(groups) == 0:
		return fmt.Errorf("no workload matches -run %q: see -list", o.run)
	case o.list:
		for _, g := range groups {
			fmt.Println(g.Title)
		}
		return nil
	}
	return measure(ctx, o, env, groups)
}

// open starts the servers of what is built on the filter, or connects to them. shut is never nil.
func (o options) open(ctx context.Context, env *front.Env) (shut func() error, err error) {
	shut = func() error {
		var err error
		if env.Redis != nil {
			err = env.Redis.Close()
		}
		if env.Records != nil {
			err = errors.Join(err, env.Records.Close())
		}
		return err
	}
	if o.list { // needs none that runs
		if o.redis != none {
			env.Redis = &server.Server{}
		}
		if o.postgres != none {
			env.Records = &database.Server{}
		}
		return func() error { return nil }, nil
	}
	if o.redis != none {
		if env.Redis, err = server.Open(ctx, o.redis, 0); err != nil {
			return shut, err
		}
	}
	if o.redis != none && o.postgres != none {
		env.Records, err = database.Open(ctx, sqladapter.Postgres, o.postgres, 0)
	}
	return shut, err
}

func measure(ctx context.Context, o options, env *front.Env, groups []harness.Group) error {
	r := harness.Runner{Rounds: o.rounds, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	r.Meter.ServerCPU = env.CPU()
	end, err := harness.Profile(o.cpuProfile, o.memProfile)
	if err != nil {
		return err
	}
	rows, err := r.Run(ctx, groups)
	if err := errors.Join(err, end()); err != nil || o.out == "" {
		return err
	}
	versions, err := env.Versions(ctx)
	if err != nil {
		return err
	}
	results := harness.Results{
		Area: "bloom", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: harness.Machine(), Versions: versions, Rows: rows, LeftOut: env.LeftOut(),
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}
