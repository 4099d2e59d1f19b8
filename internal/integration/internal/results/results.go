// Package results keeps what tests under faults have counted: bench/results/torture.json, from
// which README.md has its table (`make bench-table`).
package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// File is the newest run of each scenario.
type File struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []Row             `json:"rows"`
}

// Row is a scenario over a store.
type Row struct {
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
	History        string         `json:"history,omitempty"`
	// its verdict on the histories of all keys
	Porcupine  string `json:"porcupine,omitempty"`
	Operations int    `json:"operations,omitempty"` // of these
	Deaths     int    `json:"deaths,omitempty"`     // of processes, by SIGKILL
	Seconds    int    `json:"seconds,omitempty"`
	OK         bool   `json:"ok"`
}

// Keep replaces the row of the same scenario and store in a file, which may be new. Versions are
// added to those of the file.
func Keep(name string, row Row, versions map[string]string) error {
	var all File
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("results: %w", err)
	}
	all.Area, all.Date = "torture", time.Now().UTC().Format(time.DateOnly)
	all.Commit = said("git", "rev-parse", "--short", "HEAD")
	all.Machine = Machine()
	if all.Versions == nil {
		all.Versions = map[string]string{}
	}
	all.Versions["go"] = runtime.Version()
	for what, version := range versions {
		all.Versions[what] = version
	}
	same := func(r Row) bool {
		return r.Scenario == row.Scenario && r.Store == row.Store && r.Level == row.Level
	}
	if at := slices.IndexFunc(all.Rows, same); at >= 0 {
		all.Rows[at] = row
	} else {
		all.Rows = append(all.Rows, row)
	}
	if text, err = json.MarshalIndent(&all, "", "  "); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// Machine is what this runs on.
func Machine() string { return said("uname", "-srm") + ", " + said("nproc") + " processors" }

func said(name string, args ...string) string {
	out, _ := exec.CommandContext(context.Background(), name, args...).Output()
	return strings.TrimSpace(string(out))
}
