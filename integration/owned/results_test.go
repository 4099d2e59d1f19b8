package owned_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results is bench/results/torture.json: the newest full run of each scenario.
type results struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []resultRow       `json:"rows"`
}

type resultRow struct {
	Scenario       string         `json:"scenario"`
	Store          string         `json:"store"`
	Level          string         `json:"level"`
	Seed           uint64         `json:"seed"`
	Messages       int            `json:"messages"`
	Deliveries     int            `json:"deliveries"`
	Effects        int            `json:"effects"`
	Faults         map[string]int `json:"faults"`
	Lost           int            `json:"lost"`
	Doubled        int            `json:"doubled"`
	Stale          int            `json:"stale"`
	Explained      map[string]int `json:"explained"`
	SelfDuplicates int            `json:"self_duplicates"`
	Stuck          int            `json:"stuck"`
	History        string         `json:"history"`
	OK             bool           `json:"ok"`
}

// keep replaces the row of this scenario.
func (c *conductor) keep(v *verdict, seed uint64, took time.Duration) {
	c.t.Helper()
	name := filepath.Join("..", "..", "bench", "results", "torture.json")
	var all results
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	info, err := c.client.Info(c.t.Context(), "server").Result()
	c.must(err)
	all.Area, all.Date = "torture", time.Now().UTC().Format(time.DateOnly)
	all.Commit = said("git", "rev-parse", "--short", "HEAD")
	all.Machine = said("uname", "-srm") + ", " + said("nproc") + " processors"
	all.Versions = map[string]string{"go": runtime.Version(), "redis": between(info, "redis_version:", "\r")}
	n := c.h.counts
	all.Rows = slices.DeleteFunc(all.Rows, func(r resultRow) bool { return r.Scenario == scenario })
	all.Rows = append(all.Rows, resultRow{
		Scenario: scenario, Store: "owned over redis", Level: "claimed", Seed: seed, Messages: len(c.h.sent), Deliveries: len(c.queue),
		Faults: map[string]int{
			"kills": n.kills, "suicides": len(c.h.deaths) - n.kills, "handovers": n.handovers, "running": n.running,
			"stops": n.stops, "pauses": len(c.h.pauses), "restored": n.restored, "raised": n.raised,
		},
		Effects: len(c.h.runs), Lost: v.lost, Doubled: v.doubled, Stale: v.stale, Explained: v.explained, Stuck: c.stuck, OK: !c.t.Failed(),
		History: took.Round(time.Second).String() + ", judged from the ledgers of all processes",
	})
	text, err = json.MarshalIndent(&all, "", "  ")
	c.must(err)
	c.must(os.WriteFile(name, append(text, '\n'), 0o644))
}

const scenario = "owned: kills, pauses, handovers, races, old snapshots, raised counts"

func said(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	found, _, _ := strings.Cut(rest, to)
	return found
}
