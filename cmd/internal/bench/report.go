package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Report is what has been measured.
type Report struct {
	Store string `json:"store"`
	// Name is what the keys began with, or that of the tables.
	Name    string  `json:"name"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`
	Rate    float64 `json:"rate"` // messages a second; 0: full speed
	Dup     float64 `json:"dup"`
	Result  int     `json:"result_bytes"`
	Window  float64 `json:"window_seconds,omitempty"`
	Rounds  int     `json:"rounds"`

	Onceward Side  `json:"onceward"`
	Bare     Side  `json:"bare"`
	Ratio    Ratio `json:"ratio"`
	// MaxMemory of the servers, 0 without a limit, or where it is not known.
	MaxMemory float64 `json:"max_memory_bytes"`
	// Ended is why: done, max_keys or memory.
	Ended string   `json:"ended"`
	Notes []string `json:"notes"`
}

// Side is through the library, or without it.
type Side struct {
	Messages   int64   `json:"messages"`
	New        int64   `json:"new"`
	Duplicates int64   `json:"duplicates"`
	Operations int64   `json:"operations"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"messages_per_second"`
	Latency    Latency `json:"latency"`
	// What is not known is missing. Commands and round trips are of the client.
	Commands    *float64 `json:"commands_per_message,omitempty"`
	Trips       *float64 `json:"round_trips_per_message,omitempty"`
	CPU         *float64 `json:"server_cpu_us_per_message,omitempty"`
	BytesPerKey *float64 `json:"bytes_per_key,omitempty"`
	// Unsent were due, and not begun any more.
	Unsent int64   `json:"unsent"`
	Errors []Fault `json:"errors"`
}

// Latency is of operations, in milliseconds; with a rate from when they were due.
type Latency struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// Fault is a kind of error, and how many messages had it.
type Fault struct {
	Kind    string `json:"kind"`
	Count   int64  `json:"count"`
	Example string `json:"example"`
}

// Ratio is of messages a second, onceward to bare, round by round.
type Ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// ratioOf compares rounds, those in which both sides did something.
func ratioOf(rounds []float64) Ratio {
	if len(rounds) == 0 {
		return Ratio{}
	}
	slices.Sort(rounds)
	n := len(rounds)
	return Ratio{(rounds[(n-1)/2] + rounds[n/2]) / 2, rounds[0], rounds[n-1]}
}

// side tells what a tally has come to.
func (t *tally) side(hide func(string) string) Side {
	ms := func(q float64) float64 { return t.latency.quantile(q).Seconds() * 1e3 }
	s := Side{
		Messages: t.messages(), New: t.fresh, Duplicates: t.dups, Operations: t.operations,
		Seconds: t.elapsed.Seconds(), PerSecond: t.perSecond(),
		Latency: Latency{ms(0.5), ms(0.99), ms(0.999), t.latency.max.Seconds() * 1e3},
		Unsent:  t.unsent, Errors: []Fault{},
	}
	for _, kind := range slices.Sorted(maps.Keys(t.faults)) {
		s.Errors = append(s.Errors, Fault{kind, t.faults[kind].count, hide(t.faults[kind].example)})
	}
	return s
}

// failed is how many messages had an error.
func (s *Side) failed() (n int64) {
	for _, f := range s.Errors {
		n += f.Count
	}
	return n
}

// print writes a table for people.
func (r *Report) print(s *cli.Streams) error {
	speed := "full speed"
	if r.Rate > 0 {
		speed = fmt.Sprintf("%g messages a second due", r.Rate)
	}
	err := s.Lines(0, fmt.Sprintf(
		"%s: %d rounds, %d workers, batch %d, %s, %g %% duplicates, results of %d bytes\n",
		r.Store, r.Rounds, r.Workers, r.Batch, speed, 100*r.Dup, r.Result))
	rows := [][]string{r.Onceward.row("onceward"), r.Bare.row("bare")}
	err = errors.Join(err, s.Table([]string{"", "messages/s", "p50", "p99", "p99.9", "max",
		"commands", "round trips", "server CPU", "bytes a key", "errors"}, rows))
	for _, line := range append([]string{fmt.Sprintf(
		"\nratio  %.2f of bare (%.2f to %.2f, by rounds)", r.Ratio.Median, r.Ratio.Min,
		r.Ratio.Max)}, r.lines()...) {
		err = errors.Join(err, s.Lines(7, line))
	}
	return err
}

func (s *Side) row(name string) []string {
	return []string{name, fmt.Sprintf("%.0f", s.PerSecond), span(s.Latency.P50),
		span(s.Latency.P99), span(s.Latency.P999), span(s.Latency.Max), figure(s.Commands, "%.2f"),
		figure(s.Trips, "%.2f"), figure(s.CPU, "%.1f µs"), figure(s.BytesPerKey, "%.0f"),
		fmt.Sprint(s.failed())}
}

// lines are what stands below the table.
func (r *Report) lines() (lines []string) {
	if b := r.Onceward.BytesPerKey; b != nil {
		const million = 1e6
		line := fmt.Sprintf("room   %s for a million keys", cli.Size(*b*million))
		if r.MaxMemory > 0 {
			line += fmt.Sprintf(", %.1f %% of maxmemory (%s)", 100**b*million/r.MaxMemory,
				cli.Size(r.MaxMemory))
		}
		lines = append(lines, line)
	}
	if c := r.Onceward.CPU; c != nil && *c > 0 {
		lines = append(lines,
			fmt.Sprintf("CPU    one core of the server is used up by %.0f messages a second",
				1e6 / *c))
	}
	for _, side := range []struct {
		name string
		*Side
	}{{"onceward", &r.Onceward}, {"bare", &r.Bare}} {
		for _, f := range side.Errors {
			lines = append(lines, fmt.Sprintf("ERROR  %s: %d %s: %s", side.name, f.Count,
				f.Kind, strings.ReplaceAll(f.Example, "\n", " ")))
		}
	}
	for _, note := range r.Notes {
		lines = append(lines, "note   "+note)
	}
	return lines
}

// figure is a dash where nothing is known.
func figure(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// span is milliseconds, with three digits.
func span(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
