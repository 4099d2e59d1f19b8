package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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
	Porcupine      string         `json:"porcupine"`  // its verdict on the histories of all keys
	Operations     int            `json:"operations"` // of these
	Deaths         int            `json:"deaths"`     // of processes, by SIGKILL
	Seconds        int            `json:"seconds"`
	OK             bool           `json:"ok"`
}

// ReadTorture reads a file of them.
func ReadTorture(path string) (Torture, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Torture{}, fmt.Errorf("report: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var t Torture
	if err := dec.Decode(&t); err != nil {
		return Torture{}, fmt.Errorf("report: %s: %w", path, err)
	}
	return t, nil
}

// Table is that of docs/benchmarks.md: a line per scenario.
func (t Torture) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Commit %s, %s; %s.\n\n", t.Commit, t.Machine, told(t.Versions))
	b.WriteString("| scenario | keys | messages | effects | deaths | faults | lost | doubled | stale | second effects with a reason | histories | |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range t.scenarios() {
		ok := "yes"
		if !r.OK {
			ok = "failed"
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s | %d | %d | %d | %s | %s | %s |\n", cell(r.Scenario), r.Messages, r.Deliveries, r.Effects,
			r.Deaths, told(r.Faults), r.Lost, r.Doubled, r.Stale, told(r.Explained), cell(r.History), ok)
	}
	return b.String()
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
	slices.SortStableFunc(all, func(a, b TortureRow) int { return strings.Compare(a.Scenario, b.Scenario) })
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
	for of, from := range map[*map[string]int]map[string]int{&r.Faults: o.Faults, &r.Explained: o.Explained} {
		if *of == nil {
			*of = map[string]int{}
		}
		for name, n := range from {
			(*of)[name] += n
		}
	}
}

// told lists what a map has, in order.
func told[V any](of map[string]V) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if any(of[name]) == any(0) { // of what has not happened there is nothing to tell
			continue
		}
		all = append(all, fmt.Sprintf("%s %v", name, of[name]))
	}
	return cell(strings.Join(all, ", "))
}

// Replace returns the page with the table between the markers.
func (t Torture) Replace(page []byte) ([]byte, error) {
	return replace(page, t.Area, t.Table())
}
