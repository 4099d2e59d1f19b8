// Package harness times several ways of doing one workload, in turn and in one run, and
// keeps the ratios.
//
// Machines are noisy: absolute figures move by a factor of two between runs. So every round
// times each side once, the order rotates from round to round, and only the ratio of two
// sides within one round counts. A figure of a results file is the median over all rounds.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// Options say how a suite is run. Which of them a suite knows is in its Open.
type Options struct {
	Quick  bool // fewer workloads, in short rounds
	List   bool // only name the workloads: servers are not started
	Long   bool // what takes minutes and gigabytes more
	Rounds int
	Keys   int // most of one timing; 0: as many as the budget has time for
	Budget time.Duration
	// Servers by address; a server that is not named is started.
	Redis, Postgres, MariaDB, Brokers string
	Port                              int    // of the first server that is started; 0: free ones
	Run, Sides                        string // regular expressions of titles and of sides
	CPUProfile, MemProfile            string // files
}

// Scale is how much of everything a run does, where the command line does not say.
type Scale struct {
	Rounds, Keys int
	Budget       time.Duration
}

// Suite is the benchmarks of one area.
type Suite struct {
	Area, About string
	Full, Quick Scale
	Redis       string // the kind of server, where the command line does not say; empty: "private"
	Open        func(context.Context, Options) (*Bench, error)
}

// Server is one that takes part in a run.
type Server interface {
	Name() string // as versions have it
	Kind() string // where it is, for people
	Version(context.Context) (string, error)
	Close() error
}

// Bench is a suite whose servers are up.
type Bench struct {
	Groups  []Group
	Servers []Server
	Machine string            // besides processors and servers
	Modules map[string]string // that take part: names by path
	LeftOut []string
	Meter   Meter
	Between func(context.Context) error
	Close   func() error // of what is not a server; nil: nothing
}

func (b *Bench) end() error {
	var err error
	if b.Close != nil {
		err = b.Close()
	}
	for _, s := range b.Servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Measure runs the suite and returns its results; those of a list are empty.
func (s Suite) Measure(ctx context.Context, o Options, progress Progress) (r Results, err error) {
	b, err := s.Open(ctx, o)
	if b != nil { // also after an error
		defer func() { err = errors.Join(err, b.end()) }()
	}
	if err != nil {
		return r, err
	}
	groups, err := b.choose(o)
	if err != nil {
		return r, err
	}
	if o.List {
		for _, g := range groups {
			fmt.Println(g.Title)
		}
		return r, nil
	}
	r = Results{Area: s.Area, Commit: commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
		Versions: versions(b.Modules), LeftOut: b.LeftOut}
	about := []string{machine()}
	for _, server := range b.Servers {
		version, err := server.Version(ctx)
		if err != nil {
			return r, err
		}
		if version != "" {
			r.Versions[server.Name()] = version
		}
		about = append(about, server.Kind())
	}
	if b.Machine != "" {
		about = append(about, b.Machine)
	}
	r.Machine = strings.Join(about, ", ")
	end, err := profile(o.CPUProfile, o.MemProfile)
	if err != nil {
		return r, err
	}
	runner := Runner{Rounds: o.Rounds, MaxKeys: o.Keys, Budget: o.Budget, Progress: progress,
		Meter: b.Meter, Between: b.Between}
	r.Rows, err = runner.Run(ctx, groups)
	return r, errors.Join(err, end())
}

// choose returns the groups that the run has time for, and notes what it leaves out.
func (b *Bench) choose(o Options) (chosen []Group, err error) {
	match, err := regexp.Compile(o.Run)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	for _, g := range b.Groups {
		switch {
		case !match.MatchString(g.Title) || g.Detail && o.Quick:
		case g.Unable != "":
			b.LeftOut = append(b.LeftOut, g.Title+": "+g.Unable)
		default:
			chosen = append(chosen, g)
		}
	}
	if o.Quick {
		b.LeftOut = append(b.LeftOut,
			"points between others, and large databases: a quick run, for orientation")
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no workload matches -run %q on these servers: see -list", o.Run)
	}
	return chosen, nil
}

// profile starts the profiles whose files are named, of processor time and of allocations; end
// writes them. Samples of processor time have the label "side".
func profile(cpu, memory string) (end func() error, err error) {
	var file *os.File
	if memory != "" {
		runtime.MemProfileRate = 64 << 10 // finer than the usual 512 KiB: runs are short
	}
	if cpu != "" {
		if file, err = os.Create(cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return func() error {
		var failed error
		if file != nil {
			pprof.StopCPUProfile()
			failed = file.Close()
		}
		if memory == "" {
			return failed
		}
		out, err := os.Create(memory)
		if err != nil {
			return errors.Join(failed, err)
		}
		return errors.Join(failed, pprof.Lookup("allocs").WriteTo(out, 0), out.Close())
	}, nil
}
