package others_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// file is bench/results/torture-others.json: the newest run of each row.
type file struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []row             `json:"rows"`
}

// row is a scenario over a rival. OK says that the promises of its own documentation were kept; OK
// is also true if it promises nothing.
type row struct {
	Scenario   string         `json:"scenario"`
	Rival      string         `json:"rival"`
	Version    string         `json:"version"`
	Date       string         `json:"date"`
	Store      string         `json:"store"`
	Level      string         `json:"level"`
	Seed       uint64         `json:"seed"`
	Messages   int            `json:"messages"`
	Deliveries int            `json:"deliveries"`
	Effects    int            `json:"effects"`
	Faults     map[string]int `json:"faults"`
	Lost       int            `json:"lost"`
	Doubled    int            `json:"doubled"`
	Stuck      int            `json:"stuck"`
	Promised   []string       `json:"promised"` // the counts that must be 0: lost, doubled, stuck
	Took       string         `json:"took"`
	OK         bool           `json:"ok"`
}

// keeping is held while a row is written, because rows may end at the same time.
var keeping sync.Mutex

// keep writes a row, if the results are to be kept.
func keep(t *testing.T, c *conductor, got count, seed uint64, took time.Duration) {
	t.Helper()
	name := os.Getenv(resultsEnv)
	if name == "" || t.Failed() {
		return
	}
	keeping.Lock()
	defer keeping.Unlock()
	all, err := readFile(name)
	require.False(t, err != nil && !errors.Is(err, os.ErrNotExist), err)
	r, s, today := c.rival, c.scenario, time.Now().UTC().Format(time.DateOnly)
	all.Area, all.Date = "torture-others", today
	all.Commit = said(t, "git", "rev-parse", "--short", "HEAD")
	all.Machine = said(t, "uname", "-srm") + ", " + said(t, "nproc") + " processors"
	if all.Versions == nil {
		all.Versions = map[string]string{}
	}
	all.Versions["go"] = runtime.Version()
	for _, of := range []string{goRedis, pgxModule} {
		all.Versions[of] = versionOf(t, of)
	}
	serverVersions(c, all.Versions)
	p := r.promises[s.id]
	found := row{
		Scenario: s.name, Rival: r.name, Version: versionOf(t, r.module), Date: today,
		Store: r.store, Level: r.level, Seed: seed,
		Messages: c.size.messages, Deliveries: c.source.given, Effects: got.effects,
		Faults: c.faults,
		Lost:   got.lost, Doubled: got.doubled, Stuck: got.stuck, Promised: p.words(),
		Took: took.Round(100 * time.Millisecond).String(), OK: p&got.found() == 0,
	}
	if at := slices.IndexFunc(all.Rows, func(o row) bool {
		return o.Scenario == found.Scenario && o.Rival == found.Rival
	}); at >= 0 {
		all.Rows[at] = found
	} else {
		all.Rows = append(all.Rows, found)
	}
	all.sort()
	text, err := json.MarshalIndent(&all, "", "  ")
	c.must(err)
	c.must(os.WriteFile(name, append(text, '\n'), 0o644))
}

// words returns the names of the promised counts.
func (p promise) words() []string {
	words := []string{}
	for i, name := range []string{"lost", "doubled", "stuck"} {
		if p&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return words
}

// sort puts the rows in the order of the tables, whichever ended first.
func (f *file) sort() {
	place := func(r row) int {
		at := slices.IndexFunc(scenarios, func(s *scenario) bool { return s.name == r.Scenario })
		return at*len(rivals) + slices.IndexFunc(rivals, func(o *rival) bool {
			return o.name == r.Rival
		})
	}
	slices.SortStableFunc(f.Rows, func(a, b row) int { return place(a) - place(b) })
}

func readFile(name string) (all file, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return all, err
	}
	return all, json.Unmarshal(text, &all)
}

// versionOf returns the version of a module in go.mod; for our library it is the commit.
func versionOf(t *testing.T, module string) string {
	t.Helper()
	if module == ours {
		return "this commit"
	}
	return said(t, "go", "list", "-m", "-f", "{{.Version}}", module)
}

// serverVersions asks the servers of a row for their versions.
func serverVersions(c *conductor, versions map[string]string) {
	c.t.Helper()
	if c.client != nil {
		info, err := c.client.Info(c.t.Context(), "server").Result()
		c.must(err)
		if found := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(
			info); found != nil {
			versions["redis"] = found[1]
		}
	}
	if c.cfg.Postgres != "" {
		var version string
		c.must(c.pool().QueryRowContext(c.t.Context(), "SHOW server_version").Scan(&version))
		versions["postgres"], _, _ = strings.Cut(version, " ")
	}
}

func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	require.NoError(t, err, fmt.Errorf("%s %v: %w", name, args, err))
	return strings.TrimSpace(string(out))
}
