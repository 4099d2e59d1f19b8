package watch

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

// Options are the flags of the command.
type Options struct {
	// Metrics are where processes expose theirs.
	Metrics []string
	// Name is the onceward.name whose metrics are counted; empty for all.
	Name   string
	Server server.Options
	// Schema and Table are of PostgreSQL.
	Schema, Table string
	// Every is the time between two ticks, For how long they go on; 0 until interrupted.
	Every, For time.Duration
	// JSON writes for programs.
	JSON bool
}

const (
	defaultEvery = 2 * time.Second
	minEvery     = 100 * time.Millisecond
	defaultTable = "onceward_claims"
)

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "watch", Short: "Show live rates of processes and of a server",
		Long: `Shows rates every two seconds: on a terminal in place, elsewhere a line each time.

--metrics names the Prometheus metrics of your processes (package telemetry): claims by outcome,
duplicates by cause and age, ends, errors. No server knows those. --redis adds memory, evictions
and commands of the server, --sql (PostgreSQL) adds what happens to the table, whoever causes it.
Each may be given alone. A process that does not answer is named, and its rates are missing.`,
		Example: `onceward watch --metrics http://127.0.0.1:9100/metrics
onceward watch --redis redis://127.0.0.1:6379 --for 1m`,
		Exits: map[int]string{cli.Done: "--for is over",
			cli.Usage: "wrong usage, or nothing answered the first time"},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	f.StringSliceVar(&o.Metrics, "metrics", nil,
		"`URLs` of Prometheus metrics, with commas between")
	f.StringVar(&o.Name, "name", "",
		"count the metrics of this `name` alone (telemetry.Config.Name)")
	o.Server.Flags(f)
	f.Instead("metrics", server.Names...)
	f.StringVar(&o.Schema, "schema", "", "`schema` of the table (default the connection's own)")
	f.StringVar(&o.Table, "table", "", "`table` in PostgreSQL (default "+defaultTable+")")
	f.DurationVar(&o.Every, "every", defaultEvery, "`time` between two ticks")
	f.DurationVar(&o.For, "for", 0, "end after this `time` (default when interrupted)")
	f.BoolVar(&o.JSON, "json", false, "write a JSON object on a line each time")
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	inServer := o.Server.Redis != "" || o.Server.SQL != ""
	if o.Metrics == nil && !inServer {
		return errors.New("--metrics, --redis or --sql is missing")
	}
	for _, text := range o.Metrics {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Host == "" {
			return errors.New("--metrics has a URL that is not of the form http://host:port/metrics")
		}
	}
	if inServer || o.Server.Cluster {
		if err := o.Server.Check(); err != nil {
			return err
		}
	}
	switch {
	case o.Server.SQL == "" && (o.Schema != "" || o.Table != ""):
		return errors.New("--schema and --table need --sql")
	case o.Server.SQL != "" && o.Server.Dialect() != sqladapter.Postgres:
		return fmt.Errorf("--sql: %v does not count what happens to a table; give --metrics",
			o.Server.Dialect())
	case o.Name != "" && o.Metrics == nil:
		return errors.New("--name needs --metrics")
	case o.Every < minEvery:
		return fmt.Errorf("--every is %v; it must be at least %v", o.Every, minEvery)
	case o.For != 0 && o.For < o.Every:
		return fmt.Errorf("--for is %v, less than --every (%v)", o.For, o.Every)
	}
	if o.Table == "" {
		o.Table = defaultTable
	}
	if o.Schema != "" {
		o.Table = o.Schema + "." + o.Table
	}
	return nil
}
