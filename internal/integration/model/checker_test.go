// Package model_test has spin check key.pml: one key's life, with every order of the steps of
// several workers, their faults and the store's clock. `make model` runs it, and `make test-long`
// does.
package model_test

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed key.pml
var source []byte

// bounds say how often each fault may happen in one run.
type bounds struct{ workers, losses, crashes, pauses, failures, doubts, holds int }

func (b bounds) defines() []string {
	out := make([]string, 0, 7)
	for _, d := range []struct {
		name  string
		value int
	}{
		{"WORKERS", b.workers}, {"LOSSES", b.losses}, {"CRASHES", b.crashes}, {"PAUSES", b.pauses},
		{"FAILURES", b.failures}, {"DOUBTS", b.doubts}, {"HOLDS", b.holds},
	} {
		out = append(out, fmt.Sprintf("-D%s=%d", d.name, d.value))
	}
	return out
}

// checkResult is what the checker says.
type checkResult struct {
	states   int
	broken   string // the rule that does not hold, or "progress"; empty when all hold
	complete bool   // everything was searched
	took     time.Duration
}

var (
	storedStates = regexp.MustCompile(`(?m)^ *([0-9.e+]+) states, stored`)
	errorCount   = regexp.MustCompile(`errors: (\d+)`)
	violated     = regexp.MustCompile(`assertion violated (\w+)`)
)

// read returns the result that pan's report states.
func read(report string) (v checkResult, err error) {
	states, errs := storedStates.FindStringSubmatch(report), errorCount.FindStringSubmatch(report)
	if states == nil || errs == nil {
		return v, fmt.Errorf("no report of the checker:\n%s", report)
	}
	n, err := strconv.ParseFloat(states[1], 64)
	if err != nil {
		return v, err
	}
	v.states = int(n)
	v.complete = !strings.Contains(report, "Search not completed") &&
		!strings.Contains(report, "max search depth too small")
	switch rule := violated.FindStringSubmatch(report); {
	case rule != nil:
		v.broken = rule[1]
	case strings.Contains(report, "acceptance cycle"):
		v.broken = "progress"
	case errs[1] != "0":
		return v, fmt.Errorf("an error that is none of the rules:\n%s", report)
	}
	return v, nil
}

// check has spin write a checker for the model with these definitions, and runs it. With progress
// it looks, under weak fairness, for runs that never end; without, for states that break a rule.
func check(t *testing.T, b bounds, progress bool, defines ...string) checkResult {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pml"), source, 0o600))
	spin, compile, pan := append(b.defines(), defines...),
		[]string{"-O1", "-w", "-DNOREDUCE", "-DMEMLIM=6000"}, []string{"-m1000000"}
	if progress {
		spin, compile, pan = append(spin, "-DPROGRESS"), append(compile, "-DNFAIR=3"),
			append(pan, "-a", "-f")
	} else {
		compile = append(compile, "-DSAFETY")
	}
	run(t, dir, "spin", append(spin, "-a", "key.pml")...)
	run(t, dir, "gcc", append(compile, "-o", "pan", "pan.c")...)
	start := time.Now()
	v, err := read(run(t, dir, "./pan", pan...))
	require.NoError(t, err)
	v.took = time.Since(start)
	return v
}

// run returns what the program prints. The program ends with the test.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	require.NoError(t, err, "%s: %v (scripts/model.sh install brings spin)\n%s", cmd, err, &out)
	return out.String()
}

// A checker that stopped early, or said something else, must not count as one that found nothing.
func TestReadsReports(t *testing.T) {
	const head = "State-vector 92 byte, depth reached 266, errors: "
	const tail = "\n  6271807 states, stored\n 14911057 states, matched\n"
	rows := map[string]struct {
		report string
		want   checkResult
		bad    bool
	}{
		"all holds": {report: head + "0" + tail,
			want: checkResult{states: 6271807, complete: true}},
		"a rule is broken": {
			report: "pan:1: assertion violated end_is_final (at depth 8)\nWarning: Search not completed\n" + head + "1" + tail, want: checkResult{states: 6271807, broken: "end_is_final"}},
		"never ends": {
			report: "pan:1: acceptance cycle (at depth 8)\nWarning: Search not completed\n" +
				head + "1" + tail, want: checkResult{states: 6271807, broken: "progress"}},
		"out of memory": {report: "Warning: Search not completed\n" + head + "0" + tail,
			want: checkResult{states: 6271807}},
		"too deep": {report: "error: max search depth too small\n" + head + "0" + tail,
			want: checkResult{states: 6271807}},
		"many states": {report: head + "0\n  1.2e+07 states, stored\n",
			want: checkResult{states: 12000000, complete: true}},
		"another error": {report: "pan:1: invalid end state (at depth 8)\n" + head + "1" + tail,
			bad: true},
		"nothing": {report: "Segmentation fault", bad: true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got, err := read(row.report)
			assert.Equal(t, row.bad, err != nil, "%+v, %v; want %+v", got, err, row.want)
			assert.False(t, !row.bad && got != row.want, "%+v, %v; want %+v", got, err, row.want)
		})
	}
}
