package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

// Torture is results/torture.json: what long runs under faults have counted, written by the
// tests that have them.
type Torture struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []TortureRow      `json:"rows"`
}

// TortureRow is one scenario.
type TortureRow struct {
	Scenario       string         `json:"scenario"`
	Store          string         `json:"store"`
	Level          string         `json:"level"`
	Seed           uint64         `json:"seed"`
	Messages       int            `json:"messages"`
	Deliveries     int            `json:"deliveries"`
	Effects        int            `json:"effects"`
	Faults         map[string]int `json:"faults"`
	Lost           int            `json:"lost"`
	Doubled        int            `json:"doubled"` // without a reason
	Stale          int            `json:"stale"`   // turns accepted from a stale epoch
	Explained      map[string]int `json:"explained"`
	SelfDuplicates int            `json:"self_duplicates"`
	Stuck          int            `json:"stuck"`
	History        string         `json:"history"`
	Porcupine      string         `json:"porcupine"`  // its status on the histories of all keys
	Operations     int            `json:"operations"` // of these
	Deaths         int            `json:"deaths"`     // of processes, by SIGKILL
	Seconds        int            `json:"seconds"`
	OK             bool           `json:"ok"`
}

// ReadTorture reads a file of them.
func ReadTorture(path string) (t Torture, err error) {
	err = harness.ReadJSON(path, &t)
	return t, err
}

// Replace returns docs/benchmarks.md with the table between its markers: a line per scenario.
func (t Torture) Replace(page []byte) ([]byte, error) {
	g := newGrid("scenario", "keys", "messages", "effects", "deaths", "faults", "lost", "doubled",
		"stale", "second effects with a reason", "histories", "")
	for _, r := range t.scenarios() {
		ok := "yes"
		if !r.OK {
			ok = "failed"
		}
		n := strconv.Itoa
		g.row(r.Scenario, n(r.Messages), n(r.Deliveries), n(r.Effects), n(r.Deaths),
			listed(r.Faults), n(r.Lost), n(r.Doubled), n(r.Stale),
			listed(r.Explained), r.History, ok)
	}
	head := fmt.Sprintf("Commit %s, %s; %s.\n\n", t.Commit, t.Machine, cell(listed(t.Versions)))
	return replace(page, "table", t.Area, head+g.String())
}

// scenarios sums up the stores of each.
func (t Torture) scenarios() []TortureRow {
	var all []TortureRow
	stores := map[string]int{}
	for _, r := range t.Rows {
		if r.Porcupine != "" {
			r.History = r.Porcupine
		}
		at := slices.IndexFunc(all, func(a TortureRow) bool { return a.Scenario == r.Scenario })
		if stores[r.Scenario]++; at < 0 {
			r.Faults, r.Explained = maps.Clone(r.Faults), maps.Clone(r.Explained)
			all = append(all, r)
			continue
		}
		all[at].add(r)
	}
	for i := range all {
		r := &all[i]
		if n := stores[r.Scenario]; n > 1 {
			r.Scenario += fmt.Sprintf("; %d stores", n)
		} else if r.Store != "" {
			r.Scenario += "; " + r.Store
		}
		if r.Operations > 0 {
			r.History += fmt.Sprintf(", %d operations", r.Operations)
		}
	}
	slices.SortStableFunc(all, func(a, b TortureRow) int {
		return strings.Compare(a.Scenario, b.Scenario)
	})
	return all
}

// add sums up two stores of a scenario.
func (r *TortureRow) add(o TortureRow) {
	r.Messages += o.Messages
	r.Deliveries += o.Deliveries
	r.Effects += o.Effects
	r.Deaths += o.Deaths
	r.Lost += o.Lost
	r.Doubled += o.Doubled
	r.Stale += o.Stale
	r.Operations += o.Operations
	r.OK = r.OK && o.OK
	if !slices.Contains(strings.Split(r.History, " or "), o.History) {
		r.History += " or " + o.History
	}
	for of, from := range map[*map[string]int]map[string]int{&r.Faults: o.Faults,
		&r.Explained: o.Explained} {
		if *of == nil {
			*of = map[string]int{}
		}
		for name, n := range from {
			(*of)[name] += n
		}
	}
}
