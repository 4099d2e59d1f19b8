// Command sqlbench measures effects with the record of them in one transaction, beside the
// effects alone, and beside what else is done: a transaction for every message, a handler per
// message, the same written by hand. All sides run in one process and one run: every round
// times each side once, in turn, and only ratios within a round count, because machines are
// noisy.
//
//	sqlbench                                          everything, on a PostgreSQL and a MariaDB of its own
//	sqlbench -quick -run 'PostgreSQL'                 some of it, less exactly
//	sqlbench -postgres postgres://... -mariadb none   on a server that runs already: tables are made there, and dropped
//	sqlbench -run '8 connections, batch 256' -cpuprofile cpu.out    where the time goes
//	sqlbench -out results/sql.json                    and write results, plots and a report
//	sqlbench -render results/sql.json                 plots and report of earlier results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/record"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/sqladapter"
)

// none is the address of a server that does not take part.
const none = "none"

type options struct {
	postgres, mariadb      string
	run, out, render       string
	cpuProfile, memProfile string
	port, rounds, keys     int
	budget                 time.Duration
	quick, list            bool
}

func main() {
	o := parse(os.Args[1:])
	harness.Main("sqlbench", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) options {
	o := options{}
	flags := flag.NewFlagSet("sqlbench", flag.ExitOnError)
	flags.StringVar(&o.postgres, "postgres", database.Private, "private: a PostgreSQL of its own; none; or the URL of one")
	flags.StringVar(&o.mariadb, "mariadb", database.Private, "private: a MariaDB of its own; none; or the data source name of one, or of a MySQL")
	flags.StringVar(&o.run, "run", "", "only workloads whose title matches this regular expression")
	flags.StringVar(&o.out, "out", "", "write the results there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "measure nothing: draw plots and report of this results file again")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile there, with the label \"side\"")
	flags.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations there")
	flags.IntVar(&o.port, "port", 0, "port of the private PostgreSQL; MariaDB has the next one; 0: free ones")
	flags.IntVar(&o.rounds, "rounds", 5, "interleaved rounds of each workload, after one that warms up")
	flags.IntVar(&o.keys, "keys", 200_000, "most messages of one timing")
	flags.DurationVar(&o.budget, "time", 250*time.Millisecond, "about how long one timing takes, as far as -keys allows")
	flags.BoolVar(&o.quick, "quick", false, "fewer workloads in three short rounds: figures for orientation")
	flags.BoolVar(&o.list, "list", false, "print the workloads and end")
	_ = flags.Parse(args) // ExitOnError
	if o.quick {
		o.rounds, o.budget = 3, 150*time.Millisecond
	}
	return o
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
	env := &record.Env{}
	env.Scale(o.quick)
	shut, err := o.open(ctx, env)
	defer func() { err = errors.Join(err, shut()) }()
	if err != nil {
		return err
	}
	groups, leftOut := env.Match(env.Groups(), match)
	switch {
	case len(groups) == 0:
		return fmt.Errorf("no workload matches -run %q: see -list", o.run)
	case o.list:
		for _, g := range groups {
			fmt.Println(g.Title)
		}
		return nil
	}
	return measure(ctx, o, env, groups, leftOut)
}

// open starts the servers, or connects to them. shut is never nil. A list needs none that
// runs, but their names.
func (o options) open(ctx context.Context, env *record.Env) (shut func() error, err error) {
	shut = func() error {
		var err error
		for _, s := range env.Servers {
			err = errors.Join(err, s.Close())
		}
		return err
	}
	port := o.port
	for _, which := range []struct {
		dialect sqladapter.Dialect
		address string
	}{{sqladapter.Postgres, o.postgres}, {sqladapter.MySQL, o.mariadb}, {sqladapter.SQLite, ""}} {
		if which.address == none {
			continue
		}
		if o.list {
			env.Servers = append(env.Servers, &database.Server{Dialect: which.dialect})
			continue
		}
		s, err := database.Open(ctx, which.dialect, which.address, port)
		if err != nil {
			return shut, err
		}
		env.Servers = append(env.Servers, s)
		if port != 0 {
			port++
		}
	}
	return shut, nil
}

func measure(ctx context.Context, o options, env *record.Env, groups []harness.Group, leftOut []string) error {
	versions, err := env.Versions(ctx)
	if err != nil {
		return err
	}
	endProfile, err := harness.Profile(o.cpuProfile, o.memProfile)
	if err != nil {
		return err
	}
	r := harness.Runner{Rounds: o.rounds, MaxKeys: o.keys, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	r.Meter.ServerCPU = env.CPU()
	rows, err := r.Run(ctx, groups)
	if err := errors.Join(err, endProfile()); err != nil || o.out == "" {
		return err
	}
	results := harness.Results{
		Area: "sql", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: strings.Join([]string{harness.Machine(), env.Kind()}, ", "), Versions: versions, Rows: rows, LeftOut: leftOut,
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}
