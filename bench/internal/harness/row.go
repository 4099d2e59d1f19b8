package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// Row is one comparison: what a side reached, beside what another reached in the same
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

	Workload  string  `json:"workload,omitempty"`  // the family of rows that a plot draws
	Side      string  `json:"side,omitempty"`      // who did the work
	X         float64 `json:"x"`                   // the parameter that the family varies
	ClientUS  float64 `json:"client_us,omitempty"` // CPU microseconds per key of this process
	ServerUS  float64 `json:"server_us,omitempty"` // CPU microseconds per key of Redis's thread, or of the database
	BrokerUS  float64 `json:"broker_us,omitempty"` // CPU microseconds per message of the broker's process
	BusyUS    float64 `json:"busy_us,omitempty"`   // CPU microseconds per message of the whole machine, other programs included
	Allocs    float64 `json:"allocs,omitempty"`    // heap allocations per key of this process
	P50Micros float64 `json:"p50_us,omitempty"`    // latency of one call, microseconds
	P99Micros float64 `json:"p99_us,omitempty"`    // latency of one call, microseconds
	// Binds says which processor the side's rate is bounded by, and how busy each was.
	Binds string `json:"binds,omitempty"`
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

// Encode returns the file's text.
func (r Results) Encode() ([]byte, error) {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // goals read ">= 0.85x"
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("harness: encode results: %w", err)
	}
	return data.Bytes(), nil
}

// Write replaces the file at path at once, so that an interrupted run leaves the old one.
func (r Results) Write(path string) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("harness: %w", err)
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return fmt.Errorf("harness: %w", err)
	}
	return os.Rename(path+".new", path)
}

// Read returns the results of the file at path. A field it does not know is an error: the
// format is read by others too.
func Read(path string) (Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Results{}, fmt.Errorf("harness: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var r Results
	if err := dec.Decode(&r); err != nil {
		return Results{}, fmt.Errorf("harness: %s: %w", path, err)
	}
	return r, nil
}
