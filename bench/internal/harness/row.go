package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onceward/onceward/bench/internal/must"
)

// Results is one file of results.
type Results struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"` // of the run, UTC
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []Row             `json:"rows"`
	// LeftOut names what this run could not measure, and why.
	LeftOut []string `json:"left_out,omitempty"`
}

// Row is one comparison: what a side reached, next to what another reached in the same
// rounds. The fields after OK may be missing.
type Row struct {
	Name         string     `json:"name"`
	Value        float64    `json:"value"` // median over the rounds
	Unit         string     `json:"unit"`
	Against      string     `json:"against"` // empty where nothing is compared
	AgainstValue float64    `json:"against_value"`
	Ratio        float64    `json:"ratio"`  // median of the rounds' ratios
	Spread       [2]float64 `json:"spread"` // smallest and largest of them
	Rounds       int        `json:"rounds"`
	Goal         string     `json:"goal"` // empty: nothing is asked for
	OK           bool       `json:"ok"`

	Workload string  `json:"workload,omitempty"` // the family of rows that a plot draws
	Side     string  `json:"side,omitempty"`     // who did the work
	X        float64 `json:"x"`                  // the parameter that the family varies
	Usage
	// Binds says which processor the side's rate is bounded by, and how busy each was.
	Binds string `json:"binds,omitempty"`
}

// Figure is a row of something that is not timed in turn. Its workload and parameter are those of
// the group that it is a row of.
func Figure(name, side string, value float64, unit string, goal Goal) Row {
	return Row{Name: name, Side: side, Value: value, Unit: unit, Rounds: 1, Goal: goal.String(),
		OK: goal.Reached(value, 0)}
}

// Compared is a Figure next to another value.
func Compared(name, side string, value float64, unit, against string, other float64,
	goal Goal) Row {
	r := Figure(name, side, value, unit, goal)
	r.Against, r.AgainstValue, r.Ratio = against, other, value/other
	r.Spread = [2]float64{r.Ratio, r.Ratio}
	r.OK = goal.Reached(value, r.Ratio)
	return r
}

// String is the row on one line.
func (r Row) String() string {
	text := fmt.Sprintf("%-46s %-30s %11.4g %-8s", r.Name, r.Side, r.Value, r.Unit)
	if r.Against != "" {
		text += fmt.Sprintf(" %6.2fx [%.2f, %.2f] of %s (%.4g)", r.Ratio, r.Spread[0], r.Spread[1],
			r.Against, r.AgainstValue)
	}
	if r.Goal != "" {
		status := "missed"
		if r.OK {
			status = "reached"
		}
		text += fmt.Sprintf(" | goal %s: %s", r.Goal, status)
	}
	return text
}

// Find returns the first row of one side of one family at x that is in unit.
func (r Results) Find(workload, side, unit string, x float64) (Row, bool) {
	for _, row := range r.Rows {
		if row.Workload == workload && row.Side == side && row.Unit == unit && row.X == x {
			return row, true
		}
	}
	return Row{}, false
}

// Write replaces the file at path at once, so that an interrupted run leaves the old one.
func (r Results) Write(path string) (err error) {
	defer must.Catch(&err)
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // goals read ">= 0.85x"
	enc.SetIndent("", "  ")
	must.Do(enc.Encode(r))
	must.Do(os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(os.WriteFile(path+".new", data.Bytes(), 0o644))
	return os.Rename(path+".new", path)
}

// ReadJSON reads a file of results into what has its fields. A field that is not known is an error:
// the format is read by others too.
func ReadJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("harness: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("harness: %s: %w", path, err)
	}
	return nil
}

// Read returns the results of the file at path.
func Read(path string) (r Results, err error) {
	err = ReadJSON(path, &r)
	return r, err
}
