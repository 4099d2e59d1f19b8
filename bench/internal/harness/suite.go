// Package harness times several ways of doing one workload, in turn and in one run, and keeps the
// ratios. Machines are noisy: absolute figures differ by a factor of two between runs. So every
// round times each side once, and the order rotates from round to round. Only the ratio of two
// sides within one round counts. A figure of a results file is the median over all rounds.
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

// Options say how a suite is run. The Open function of each suite reports which of them it uses.
type Options struct {
	Quick bool // fewer workloads, in short rounds
	List  bool // only list the workloads: servers are not started
	Long  bool // also run what takes minutes and gigabytes
	Scale
	// Servers by address; a server without one is started.
	Redis, Postgres, MariaDB, Brokers string
	Run                               string // a regular expression for titles
	CPUProfile                        string // a file
}

// Scale says how much a run does.
type Scale struct {
	Rounds int           // that count; one more comes before them
	Keys   int           // most of one timing; 0: as many as fit into the budget
	Budget time.Duration // of one timing
}

// Suite is the benchmarks of one area.
type Suite struct {
	Area, About string
	Full, Quick Scale
	Redis       string // kind of server if the command line names none; empty: "private"
	// Open starts the servers, and fails with [must.Do]. The functions that it has deferred run
	// even after a failure.
	Open func(context.Context, Options, *Bench)
}

// Server takes part in a run, or is a model of one that does.
type Server struct {
	Name, Kind string                       // Name as in versions; Kind says where it is
	Version    func(context.Context) string // nil: unknown
}

// Bench is a suite whose servers are up. Deferred functions run when the suite ends.
type Bench struct {
	Cleanup
	Runner
	Groups  []Group
	Servers []*Server
	Modules []string // that take part, by their names in versions
	LeftOut []string
}

// LeaveOut records what the run cannot measure, and why.
func (b *Bench) LeaveOut(what string) { b.LeftOut = append(b.LeftOut, what) }

// Measure runs the suite and returns its results. With Options.List they are empty.
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
	if o.CPUProfile != "" { // its samples have the label "side"
		file := must.Get(os.Create(o.CPUProfile))
		b.Defer(file.Close)
		must.Do(pprof.StartCPUProfile(file))
		defer pprof.StopCPUProfile()
	}
	b.Scale, b.Progress = o.Scale, progress
	r.Rows, err = b.Run(ctx, groups)
	return r, err
}

// choose returns the groups that the run includes, and records what it leaves out.
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

// Runner measures groups.
type Runner struct {
	Scale

	Meter    Meter
	Progress Progress // nil: no reports
	// Between runs before every group, to empty the server. It may be nil.
	Between func(context.Context)
}

// Progress receives where a run is, and the rows of a group at its end.
type Progress func(at string, ended []Row)

// Run measures all groups and returns their rows. If ctx ends, it returns the complete rows and the
// error.
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

// sideAt returns the i-th side of a round. No side always comes first, or always after the same
// one, whose keys the server may still be expiring. So each round begins with another side, and
// every other round goes backwards.
func sideAt(i, round, sides int) int {
	if round%2 == 1 {
		i = sides - i
	}
	return (round + i) % sides
}

// calibrate warms a side up and returns how many keys fill the budget.
func (r Runner) calibrate(ctx context.Context, s *Setup, side Side) int {
	if side.External != nil {
		r.Meter.Time(ctx, side, nil)
		return 0
	}
	most := min(cmp.Or(r.Keys, math.MaxInt), cmp.Or(s.MaxKeys, math.MaxInt)) // 0: no limit
	least := max(s.MinKeys, side.MinKeys)
	// few keys, because a side may take milliseconds for each; the first timing opens the
	// connections
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

// ProcessCPU returns the CPU time that this process has used, user and system.
func ProcessCPU() time.Duration {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use) // it fails only for invalid arguments
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// machineCPU returns how long the processors of this machine were busy, or 0 if /proc does not say.
// User already includes the time of guests.
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

// machine describes this machine, without its name.
func machine() string {
	text := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	proc, _ := procfs.NewDefaultFS()
	if info, _ := proc.CPUInfo(); len(info) > 0 && info[0].ModelName != "" {
		text += ", " + info[0].ModelName
	}
	return text
}

// commit returns the checked-out commit, with a '+' if files differ from it, or "unknown".
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	// Results may differ: a run writes them.
	dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no",
		"--", ":/", ":!/bench/results", ":!/docs/evidence", ":!/docs/compare.md",
		":!/README.md").Output()
	if err == nil && len(dirty) > 0 {
		commit += "+"
	}
	return commit
}

//go:embed modules.txt
var modules string // lines of a module that a run may compare, and its name in versions

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
