// Command bench measures Onceward next to its limits and to what people use instead. All sides of a
// workload run in one process and one run. Every round times each side once, in turn. Only ratios
// within a round count, because machines are noisy.
//
//	bench redis                                          everything, on servers of its own
//	bench redis -quick -run 'batch 256'                  some of it, less exactly
//	bench kafka -run '^4 .* 0 %' -cpuprofile cpu.out     where the time goes: go tool pprof -tagfocus 'adapter, full' cpu.out
//	bench sql -postgres postgres://... -mariadb none     on a server that runs already: tables are made there, and dropped
//	bench redis -out results/redis.json                  and write results, drawings and a page
//	bench render results/redis.json                      drawings and page of earlier results
//	bench table -write                                   the tables of results into docs/evidence and README.md
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/onceward/onceward/bench/internal/filterbench"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/httpbench"
	"github.com/onceward/onceward/bench/internal/kafkabench"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/outboxbench"
	"github.com/onceward/onceward/bench/internal/redisbench"
	"github.com/onceward/onceward/bench/internal/report"
	"github.com/onceward/onceward/bench/internal/retrybench"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/sqlbench"
)

var suites = []harness.Suite{
	redisbench.Suite, kafkabench.Suite, sqlbench.Suite, filterbench.Suite, httpbench.Suite,
	retrybench.Suite, outboxbench.Suite,
}

func main() {
	// Even if the pipe of the output is closed, the program must stop the servers that it has
	// started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGPIPE)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "bench: interrupted, nothing was written")
		os.Exit(130)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	defer must.Catch(&err)
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch command, rest := args[0], args[1:]; command {
	case server.BrokerArg: // run as the embedded broker of the suite kafka
		return server.ServeBroker(os.Stdin, os.Stdout)
	case "table":
		return tables(slices.Contains(rest, "-write"))
	case "render":
		for _, file := range rest {
			must.Do(report.Write(must.Get(harness.Read(file)), file))
		}
		return nil
	default:
		i := slices.IndexFunc(suites, func(s harness.Suite) bool { return s.Area == command })
		if i < 0 {
			return usage()
		}
		return measure(ctx, suites[i], rest)
	}
}

func usage() error {
	for _, s := range suites {
		fmt.Fprintf(os.Stderr, "bench %-8s %s\n", s.Area, s.About)
	}
	fmt.Fprint(os.Stderr, "bench render   draw results files again\n"+
		"bench table    compare the tables of the documents with results, or -write them\n")
	return flag.ErrHelp
}

func measure(ctx context.Context, s harness.Suite, args []string) error {
	o, out, err := parse(s, args)
	if err != nil {
		return err
	}
	r, err := s.Measure(ctx, o, progress)
	for _, reason := range r.LeftOut {
		fmt.Println("left out:", reason)
	}
	if err != nil || out == "" || o.List {
		return err
	}
	must.Do(r.Write(out))
	return report.Write(r, out)
}

func parse(s harness.Suite, args []string) (o harness.Options, out string, err error) {
	f := flag.NewFlagSet(s.Area, flag.ContinueOnError)
	f.BoolVar(&o.Quick, "quick", false, "fewer workloads in short rounds: figures for orientation")
	f.BoolVar(&o.List, "list", false, "print the workloads and end")
	f.BoolVar(&o.Long, "long", false,
		"redis: remember ten million keys as well: minutes and gigabytes more")
	f.IntVar(&o.Rounds, "rounds", 0, fmt.Sprintf("interleaved rounds of each workload, "+
		"after one that warms up (default %d)", s.Full.Rounds))
	f.IntVar(&o.Keys, "keys", 0,
		fmt.Sprintf("most keys or messages of one timing (default %d)", s.Full.Keys))
	f.DurationVar(&o.Budget, "time", 0, fmt.Sprintf("about how long one timing takes, "+
		"as far as -keys allows (default %v)", s.Full.Budget))
	f.StringVar(&o.Redis, "redis", cmp.Or(s.Redis, server.Private),
		"private: a redis-server of its own; durable: one with an append-only file; embedded: miniredis; none; or host:port")
	f.StringVar(&o.Postgres, "postgres", server.Private,
		"private: a PostgreSQL of its own; none; or the URL of one")
	f.StringVar(&o.MariaDB, "mariadb", server.Private,
		"private: a MariaDB of its own; none; or the data source name of one, or of a MySQL")
	f.StringVar(&o.Brokers, "brokers", "",
		"host:port,... of a Kafka that runs; default: an embedded one in a process of its own")
	f.StringVar(&o.Run, "run", "", "only workloads whose title matches this regular expression")
	f.StringVar(&o.CPUProfile, "cpuprofile", "",
		"write a CPU profile there, with the label \"side\"")
	f.StringVar(&out, "out", "",
		"write the results there, and drawings and a page next to them; default: print only")
	if err := f.Parse(args); err != nil {
		return o, "", err
	}
	switch _, missing := os.Stat(out); {
	case f.NArg() > 0:
		return o, "", fmt.Errorf("%s: unexpected %q", s.Area, f.Args())
	case o.Rounds < 0 || o.Keys < 0 || o.Budget < 0:
		return o, "", errors.New("-rounds, -keys and -time must be positive")
	case missing == nil && o.Run != "":
		return o, "", fmt.Errorf(
			"-run with -out would replace the full run in %s: name another file", out)
	}
	scale := s.Full
	if o.Quick {
		scale = s.Quick
	}
	o.Scale = harness.Scale{Rounds: cmp.Or(o.Rounds, scale.Rounds),
		Keys: cmp.Or(o.Keys, scale.Keys), Budget: cmp.Or(o.Budget, scale.Budget)}
	for _, address := range []*string{&o.Redis, &o.Postgres, &o.MariaDB} {
		if o.List && *address != server.None {
			*address = server.Listed
		}
	}
	return o, out, nil
}

// progress prints a line for each row, and on a terminal also where the run is.
func progress(at string, ended []harness.Row) {
	if isatty.IsTerminal(os.Stderr.Fd()) {
		fmt.Fprint(os.Stderr, "\r\x1b[K", at)
	}
	for _, r := range ended {
		// without the rows that only a figure draws
		if r.Against != "" || r.Goal != "" || len(ended) < 100 {
			fmt.Println(r)
		}
	}
}

// tables writes the tables of results into the documents, or checks that they are there.
func tables(write bool) (err error) {
	root := must.Get(server.Root())
	var areas []string
	for _, s := range suites {
		areas = append(areas, s.Area)
	}
	for _, name := range []string{report.Benchmarks, report.Bloom, report.Faults, report.Compare,
		report.Readme} {
		err = errors.Join(err, must.Try(func() {
			file := filepath.Join(root, "docs", name)
			results := filepath.Join(root, "bench", "results")
			old := must.Get(os.ReadFile(file))
			text := must.Get(report.Update(name, old, results, areas...))
			must.True(write || bytes.Equal(old, text),
				"%s does not have the tables of bench/results: make bench-table", file)
			if write {
				must.Do(os.WriteFile(file, text, 0o644))
			}
		}))
	}
	return err
}
