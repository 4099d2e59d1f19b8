// Command httpbench times requests through the middleware of httpadapter beside its limits and beside
// what else people use (bench/internal/web/serve), and shows what package retry spares a server:
// simulations of a thousand clients, in fake time, with the code that is shipped (bench/internal/web).
//
//	httpbench -out results/http.json            requests, on servers of its own (from the folder bench)
//	httpbench -retry results/retry.json         simulations
//	httpbench -quick                            some of both, printed only
//	httpbench -redis embedded -postgres none    without servers
//	httpbench -render results/http.json         plots and report of earlier results
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

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/web"
	"github.com/onceward/onceward/bench/internal/web/serve"
	"github.com/onceward/onceward/sqladapter"
)

type options struct {
	out, retry, render string
	redis, postgres    string
	rounds             int
	budget             time.Duration
	quick              bool
}

func main() {
	o := options{}
	flags := flag.NewFlagSet("httpbench", flag.ExitOnError)
	flags.StringVar(&o.out, "out", "", "time requests and write the results there, and plots and a report beside them")
	flags.StringVar(&o.retry, "retry", "", "run the simulations and write their results there, and plots and a report beside them; without -out and -retry all is run, and printed only")
	flags.StringVar(&o.render, "render", "", "run nothing: draw plots and report of this results file again")
	flags.StringVar(&o.redis, "redis", server.Private, "private: a redis-server of its own; embedded: miniredis; or host:port")
	flags.StringVar(&o.postgres, "postgres", database.Private, "private: a PostgreSQL of its own; none; or a URL")
	flags.IntVar(&o.rounds, "rounds", 7, "interleaved rounds of requests, after one that warms up; and runs of each simulation")
	flags.DurationVar(&o.budget, "time", 300*time.Millisecond, "about how long one timing takes")
	flags.BoolVar(&o.quick, "quick", false, "one run of the simulations, three short rounds of requests")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
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
	switch {
	case o.rounds < 1:
		return errors.New("-rounds must be positive")
	case o.budget <= 0:
		return errors.New("-time must be positive")
	}
	both := o.out == "" && o.retry == ""
	if both || o.out != "" {
		if err := requests(ctx, o); err != nil {
			return err
		}
	}
	if both || o.retry != "" {
		return storms(ctx, o)
	}
	return nil
}

// none is the PostgreSQL of who has none.
const none = "none"

// leftOut is who belongs beside us and cannot be had.
const leftOut = "github.com/repenguin22/idemlease, which the Go module proxy does not have"

// requests times the sides of package serve.
func requests(ctx context.Context, o options) (err error) {
	env, shut, err := open(ctx, o)
	defer func() { err = errors.Join(err, shut()) }()
	if err != nil {
		return err
	}
	versions, err := env.Versions(ctx)
	if err != nil {
		return err
	}
	r := harness.Runner{Rounds: o.rounds, MaxKeys: 50_000, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	if o.quick {
		r.Rounds, r.Budget = 3, 50*time.Millisecond
	}
	if env.Redis.Own {
		r.Between = env.Redis.Empty
	}
	rows, err := r.Run(ctx, env.Groups())
	if err != nil || o.out == "" {
		return err
	}
	results := harness.Results{
		Area: "http", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: harness.Machine() + ", " + env.Kind(), Versions: versions, Rows: rows, LeftOut: []string{leftOut},
	}
	if env.Postgres == nil {
		results.LeftOut = append(results.LeftOut, "PostgreSQL")
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}

// open starts the servers, or connects to them. shut is never nil.
func open(ctx context.Context, o options) (env *serve.Env, shut func() error, err error) {
	env = &serve.Env{}
	shut = func() error {
		var err error
		if env.Postgres != nil {
			err = env.Postgres.Close()
		}
		if env.Redis != nil {
			err = errors.Join(err, env.Redis.Close())
		}
		return err
	}
	if env.Redis, err = server.Open(ctx, o.redis, 0); err != nil {
		return env, shut, err
	}
	if o.postgres != none {
		env.Postgres, err = database.Open(ctx, sqladapter.Postgres, o.postgres, 0)
	}
	return env, shut, err
}

// storms runs the simulations.
func storms(ctx context.Context, o options) error {
	n := min(o.rounds, 5)
	if o.quick {
		n = 1
	}
	rounds, err := simulate(ctx, n)
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
