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

// Table is the README's.
func (t Torture) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Commit %s, %s; %s.\n\n", t.Commit, t.Machine, told(t.Versions))
	b.WriteString("| scenario | keys | messages | effects | faults | lost | doubled | stale | second effects with a reason | |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range t.Rows {
		ok := "yes"
		if !r.OK {
			ok = "failed"
		}
		fmt.Fprintf(&b, "| %s; %s | %d | %d | %d | %s | %d | %d | %d | %s | %s |\n", cell(r.Scenario), cell(r.History), r.Messages, r.Deliveries, r.Effects,
			told(r.Faults), r.Lost, r.Doubled, r.Stale, told(r.Explained), ok)
	}
	return b.String()
}

// told lists what a map has, in order.
func told[V any](of map[string]V) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %v", name, of[name]))
	}
	return cell(strings.Join(all, ", "))
}

// Replace returns a README with the table between the markers.
func (t Torture) Replace(readme []byte) ([]byte, error) {
	return replace(readme, t.Area, t.Table())
}
