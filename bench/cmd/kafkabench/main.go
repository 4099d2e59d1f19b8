// Command kafkabench measures the Kafka adapter beside what binds it: a bare consumer loop of
// the same client on the same broker, and batches of claims and completions on the same Redis
// without Kafka. All sides run in one process and one run: every round times each side once,
// in turn, and only ratios within a round count, because machines are noisy.
//
//	kafkabench                                        everything, on a broker and a redis-server of its own
//	kafkabench -quick                                 some of it, less exactly
//	kafkabench -brokers host:9092,host:9093           on a Kafka that runs already: topics are made there, and removed
//	kafkabench -run '^4 .* 0 %' -sides rich -cpuprofile cpu.out     where the time goes: go tool pprof -tagfocus 'adapter, rich' cpu.out
//	kafkabench -out results/kafka.json                and write results, plots and a report
//	kafkabench -render results/kafka.json             plots and report of earlier results
//	kafkabench broker                                 be the embedded broker, until standard input ends
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

	"github.com/onceward/onceward/bench/internal/broker"
	"github.com/onceward/onceward/bench/internal/consumer"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/server"
)

// serve is the argument that makes this program the embedded broker.
const serve = "broker"

type options struct {
	redis, brokers, run, sides, out, render string
	cpuProfile, memProfile                  string
	port, rounds, messages                  int
	budget                                  time.Duration
	quick, list                             bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == serve {
		if err := broker.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "kafkabench:", err)
			os.Exit(1)
		}
		return
	}
	o := parse(os.Args[1:])
	harness.Main("kafkabench", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) options {
	o := options{}
	flags := flag.NewFlagSet("kafkabench", flag.ExitOnError)
	flags.StringVar(&o.redis, "redis", server.Private, "private: a redis-server of its own; embedded: miniredis; or host:port")
	flags.StringVar(&o.brokers, "brokers", "", "host:port,... of a Kafka that runs; default: an embedded one in a process of its own")
	flags.IntVar(&o.port, "port", 0, "port of the private redis-server; 0: a free one")
	flags.StringVar(&o.run, "run", "", "only workloads whose title matches this regular expression")
	flags.StringVar(&o.sides, "sides", "", "only consumers whose name matches this regular expression")
	flags.StringVar(&o.out, "out", "", "write the results there, and plots and a report beside them; default: print only")
	flags.StringVar(&o.render, "render", "", "measure nothing: draw plots and report of this results file again")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile there, with the label \"side\"")
	flags.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations there: choose one side with -sides")
	flags.IntVar(&o.rounds, "rounds", 5, "interleaved rounds of each workload, after one that warms up")
	flags.IntVar(&o.messages, "messages", 120_000, "most messages of one timing")
	flags.DurationVar(&o.budget, "time", 400*time.Millisecond, "about how long one timing takes, as far as -messages allows")
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
	case o.messages < 1:
		return fmt.Errorf("-messages is %d: at least one is needed", o.messages)
	case o.budget <= 0:
		return fmt.Errorf("-time is %v: it must be positive", o.budget)
	case (o.run != "" || o.sides != "") && o.out != "":
		if _, err := os.Stat(o.out); err == nil {
			return fmt.Errorf("-run or -sides with -out would replace the full run in %s: name another file", o.out)
		}
	}
	return nil
}

func run(ctx context.Context, o options) error {
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
	env, err := o.env()
	if err != nil {
		return err
	}
	match, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
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

// env is where the workloads run, but for the servers.
func (o options) env() (*consumer.Env, error) {
	sides, err := regexp.Compile(o.sides)
	if err != nil {
		return nil, fmt.Errorf("-sides: %w", err)
	}
	return &consumer.Env{Budget: o.budget, Messages: o.messages, Quick: o.quick, Choose: sides.MatchString}, nil
}

func measure(ctx context.Context, o options, env *consumer.Env, groups []harness.Group, leftOut []string) (err error) {
	shut, err := open(ctx, o, env)
	defer func() { err = errors.Join(err, shut()) }()
	if err != nil {
		return err
	}
	versions, err := env.Versions(ctx)
	if err != nil {
		return err
	}
	endProfile, err := harness.Profile(o.cpuProfile, o.memProfile)
	if err != nil {
		return err
	}
	r := harness.Runner{Rounds: o.rounds, MaxKeys: o.messages, Budget: o.budget, Progress: harness.NewBar(os.Stdout, os.Stderr)}
	rows, err := r.Run(ctx, groups)
	if err := errors.Join(err, endProfile()); err != nil || o.out == "" {
		return err
	}
	results := harness.Results{
		Area: "kafka", Commit: harness.Commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Machine:  strings.Join([]string{harness.Machine(), env.Redis.Kind(), env.Broker.Kind()}, ", "),
		Versions: versions, Rows: rows, LeftOut: leftOut,
	}
	if err := results.Write(o.out); err != nil {
		return err
	}
	return report.Write(results, o.out)
}

// open starts the servers, or connects to them. shut is never nil.
func open(ctx context.Context, o options, env *consumer.Env) (shut func() error, err error) {
	shut = func() error { return nil }
	if env.Redis, err = server.Open(ctx, o.redis, o.port); err != nil {
		return shut, err
	}
	shut = env.Redis.Close
	if env.Broker, err = o.openBroker(ctx); err != nil {
		return shut, err
	}
	env.MeasureCPU()
	return func() error { return errors.Join(env.Broker.Close(), env.Redis.Close()) }, nil
}

func (o options) openBroker(ctx context.Context) (*broker.Broker, error) {
	if o.brokers != "" {
		return broker.Connect(strings.Split(o.brokers, ",")...), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's file: %w", err)
	}
	return broker.Start(ctx, self, serve)
}
