// Package harness times several ways of doing one workload, in turn and in one run, and keeps the
// ratios. Machines are noisy: absolute figures move by a factor of two between runs. So every round
// times each side once, the order rotates from round to round, and only the ratio of two sides
// within one round counts. A figure of a results file is the median over all rounds.
package harness

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/onceward/onceward/bench/internal/must"
)

// Options say how a suite is run. Which of them a suite knows is in its Open.
type Options struct {
	Quick bool // fewer workloads, in short rounds
	List  bool // only name the workloads: servers are not started
	Long  bool // what takes minutes and gigabytes more
	Scale
	// Servers by address; a server that is not named is started.
	Redis, Postgres, MariaDB, Brokers string
	Run                               string // a regular expression of titles
	CPUProfile                        string // a file
}

// Scale is how much of everything a run does.
type Scale struct {
	Rounds int           // that count; one more goes before them
	Keys   int           // most of one timing; 0: as many as the budget has time for
	Budget time.Duration // of one timing
}

// Suite is the benchmarks of one area.
type Suite struct {
	Area, About string
	Full, Quick Scale
	Redis       string // the kind of server, where the command line does not say; empty: "private"
	// Open starts the servers, and fails with [must.Do]. Its deferred calls also run then.
	Open func(context.Context, Options, *Bench)
}

// Server is one that takes part in a run, or a model of one.
type Server struct {
	Name, Kind string                       // as versions have it; where it is, for people
	Version    func(context.Context) string // nil: unknown
}

// Bench is a suite whose servers are up. Deferred functions run when the suite ends.
type Bench struct {
	Cleanup
	Runner
	Groups  []Group
	Servers []*Server
	Modules []string // that take part, as versions have them
	LeftOut []string
}

// LeaveOut notes what the run cannot measure, and why.
func (b *Bench) LeaveOut(what string) { b.LeftOut = append(b.LeftOut, what) }

// Measure runs the suite and returns its results; those of a list are empty.
func (s Suite) Measure(ctx context.Context, o Options, progress Progress) (r Results, err error) {
	b := &Bench{}
	defer func() { err = errors.Join(err, b.Close()) }()
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
		if server.Version != nil {
			r.Versions[server.Name] = server.Version(ctx)
		}
		about = append(about, server.Kind)
	}
	r.Machine = strings.Join(about, ", ")
	defer startProfile(o.CPUProfile)()
	b.Scale, b.Progress = o.Scale, progress
	r.Rows, err = b.Run(ctx, groups)
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

// startProfile starts a profile of processor time, whose samples have the label "side", if a file
// is named; end writes it.
func startProfile(name string) (end func()) {
	if name == "" {
		return func() {}
	}
	file := must.Get(os.Create(name))
	must.Do(pprof.StartCPUProfile(file))
	return func() {
		pprof.StopCPUProfile()
		must.Do(file.Close())
	}
}

// Runner measures groups.
type Runner struct {
	Scale

	Meter    Meter
	Progress Progress // nil: nobody wants to know
	// Between runs before every group, to empty the server. Nil: nothing.
	Between func(context.Context)
}

// Progress is told where a run is, and at the end of a group its rows.
type Progress func(at string, ended []Row)

// Run measures all groups and returns their rows. When ctx ends it returns what is
// complete, with the error.
func (r Runner) Run(ctx context.Context, groups []Group) (rows []Row, err error) {
	if r.Progress == nil {
		r.Progress = func(string, []Row) {}
	}
	for i, g := range groups {
		more, err := r.group(ctx, g, fmt.Sprintf("[%d/%d]", i+1, len(groups)))
		if err != nil {
			return rows, fmt.Errorf("%s: %w", g.Title, cmp.Or(context.Cause(ctx), err))
		}
		r.Progress("", more)
		rows = append(rows, more...)
	}
	return rows, nil
}

func (r Runner) group(ctx context.Context, g Group, number string) (rows []Row, err error) {
	s := &Setup{Keys: FreshKeys}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer must.Catch(&err)
	r.Progress(number+" "+g.Title, nil)
	if r.Between != nil {
		r.Between(ctx)
	}
	g.Open(ctx, s)
	if s.ServerCPU != nil {
		r.Meter.ServerCPU = s.ServerCPU
	}
	sizes := make([]int, len(s.Sides))
	for i, side := range s.Sides {
		sizes[i] = r.calibrate(ctx, s, side)
	}
	samples := make(map[string][]Sample)
	for round := range r.Rounds {
		r.Progress(fmt.Sprintf("%s %s: round %d of %d", number, g.Title, round+1, r.Rounds), nil)
		for i := range s.Sides {
			at := sideAt(i, round, len(s.Sides))
			sample := r.Meter.Time(ctx, s.Sides[at], s.Keys(sizes[at]))
			samples[s.Sides[at].Name] = append(samples[s.Sides[at].Name], sample)
		}
	}
	for i := range s.Rows {
		if s.Rows[i].Workload == "" {
			s.Rows[i].Workload, s.Rows[i].X = g.Workload, g.X
		}
	}
	return append(g.rows(s, samples), s.Rows...), nil
}

// sideAt is the side that comes as the i-th of a round. No side always comes first, or after the
// same one, whose keys the server may still be expiring: each round begins with another side, and
// every other round goes backwards.
func sideAt(i, round, sides int) int {
	if round%2 == 1 {
		i = sides - i
	}
	return (round + i) % sides
}

// calibrate warms a side up and says how many keys fill the budget.
func (r Runner) calibrate(ctx context.Context, s *Setup, side Side) int {
	if side.External != nil {
		r.Meter.Time(ctx, side, nil)
		return 0
	}
	most := min(cmp.Or(r.Keys, math.MaxInt), cmp.Or(s.MaxKeys, math.MaxInt)) // 0: no limit
	least := max(s.MinKeys, side.MinKeys)
	// few, because a side may take milliseconds for each; the first timing opens the connections
	n := s.roundUp(max(min(most, 64), least))
	for range 2 {
		rate := r.Meter.Time(ctx, side, s.Keys(n)).Rate
		n = s.roundUp(max(min(most, max(n/2, int(rate*r.Budget.Seconds()))), least))
	}
	return n
}

func (s *Setup) roundUp(n int) int {
	m := max(s.Multiple, 1)
	return max((n+m-1)/m, 1) * m
}

// ProcessCPU is the CPU time that this process has used, user and system.
func ProcessCPU() time.Duration {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use) // it fails for bad arguments alone
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// machineCPU is the time that the processors of this machine were busy, or 0 where /proc does not
// say. User has the time of guests already.
func machineCPU() time.Duration {
	proc, _ := procfs.NewDefaultFS()
	stat, err := proc.Stat()
	if err != nil {
		return 0
	}
	t := stat.CPUTotal
	busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	return time.Duration(busy * float64(time.Second))
}

// machine says what this runs on, without its name.
func machine() string {
	text := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	proc, _ := procfs.NewDefaultFS()
	if info, _ := proc.CPUInfo(); len(info) > 0 && info[0].ModelName != "" {
		text += ", " + info[0].ModelName
	}
	return text
}

// commit is the checked-out commit, with a '+' where files differ from it, or "unknown".
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	// Results themselves may differ: they are what a run writes.
	dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no",
		"--", ":/", ":!/bench/results", ":!/docs/evidence", ":!/docs/compare.md",
		":!/README.md").Output()
	if err == nil && len(dirty) > 0 {
		commit += "+"
	}
	return commit
}

//go:embed modules.txt
var modules string // lines of a module that a run may compare, and its name, as versions have it

// versions are those of Go and of the modules of these names.
func versions(names []string) map[string]string {
	all := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			_, named, _ := strings.Cut("\n"+modules, "\n"+dep.Path+" ")
			if name, _, _ := strings.Cut(named, "\n"); slices.Contains(names, name) {
				all[name] = strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return all
}
