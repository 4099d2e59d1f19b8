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

	"github.com/onceward/onceward/bench/internal/must"
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
	// Open starts the servers, and fails with [must.Do]. Those that it has added to the Bench are
	// closed also after an error.
	Open func(context.Context, Options, *Bench)
}

// Server is one that takes part in a run.
type Server interface {
	Name() string // as versions have it
	Kind() string // where it is, for people
	Version(context.Context) string
	Close() error
}

// Bench is a suite whose servers are up.
type Bench struct {
	Groups  []Group
	Servers []Server
	Machine string            // other than processors and servers
	Modules map[string]string // that take part: names by path
	LeftOut []string
	Meter   Meter
	Between func(context.Context)
	Close   func() error // of what is not a server; nil: nothing
}

// LeaveOut notes what the run cannot measure, and why.
func (b *Bench) LeaveOut(what string) { b.LeftOut = append(b.LeftOut, what) }

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
	b := &Bench{}
	defer func() { err = errors.Join(err, b.end()) }()
	defer must.Catch(&err)
	s.Open(ctx, o, b)
	groups := b.choose(o)
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
		if version := server.Version(ctx); version != "" {
			r.Versions[server.Name()] = version
		}
		about = append(about, server.Kind())
	}
	if b.Machine != "" {
		about = append(about, b.Machine)
	}
	r.Machine = strings.Join(about, ", ")
	defer startProfiles(o.CPUProfile, o.MemProfile)()
	r.Rows, err = Runner{Rounds: o.Rounds, MaxKeys: o.Keys, Budget: o.Budget, Progress: progress,
		Meter: b.Meter, Between: b.Between}.Run(ctx, groups)
	return r, err
}

// choose returns the groups that the run has time for, and notes what it leaves out.
func (b *Bench) choose(o Options) (chosen []Group) {
	match, err := regexp.Compile(o.Run)
	must.True(err == nil, "-run: %w", err)
	for _, g := range b.Groups {
		switch {
		case !match.MatchString(g.Title) || g.Detail && o.Quick:
		case g.Unable != "":
			b.LeaveOut(g.Title + ": " + g.Unable)
		default:
			chosen = append(chosen, g)
		}
	}
	if o.Quick {
		b.LeaveOut("points between others, and large databases: a quick run, for orientation")
	}
	must.True(len(chosen) > 0, "no workload matches -run %q on these servers: see -list", o.Run)
	return chosen
}

// startProfiles starts the profiles whose files are named, of processor time and of allocations;
// end writes them. Samples of processor time have the label "side".
func startProfiles(cpu, memory string) (end func()) {
	var file *os.File
	if memory != "" {
		runtime.MemProfileRate = 64 << 10 // finer than the usual 512 KiB: runs are short
	}
	if cpu != "" {
		file = must.Get(os.Create(cpu))
		must.Do(pprof.StartCPUProfile(file))
	}
	return func() {
		if file != nil {
			pprof.StopCPUProfile()
			must.Do(file.Close())
		}
		if memory != "" {
			out := must.Get(os.Create(memory))
			must.Do(errors.Join(pprof.Lookup("allocs").WriteTo(out, 0), out.Close()))
		}
	}
}
