package skipreport

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// workspace is where go.work is in a checkout; a released module has none.
const workspace = "../../go.work"

// TestSayWhatWasLeftOut prints the notice. It can fail only where it cannot see what is left out.
func TestSayWhatWasLeftOut(t *testing.T) {
	keepOutOfCache(t)
	modules, err := nestedModules(workspace)
	if err != nil {
		t.Skipf("not a checkout: %v", err)
	}
	text := notice(os.Getenv, modules)
	if text == "" {
		return
	}
	if err := write(text); err != nil {
		t.Log(err)
	}
	t.Log(text) // for go test -v, and for a machine without a terminal
}

// stamp is young forever: its time of change is a century ahead.
const stamp = ".stamp"

// keepOutOfCache opens the stamp: the go command does not cache the result of a test that read a
// file whose time is less than two seconds ago, or in the future. Otherwise the second run would be
// silent. If every run wrote the stamp, the tests that list our folder would run again, too: the
// time of each file in a listed folder is a part of the cache's key.
func keepOutOfCache(t *testing.T) {
	t.Helper()
	if err := makeStamp(stamp, time.Now()); err != nil {
		t.Logf("a cached result may hide the notice: %v", err)
		return
	}
	_, err := os.ReadFile(stamp)
	require.NoError(t, err)
}

// makeStamp makes the file unless it is there and still young in a year.
func makeStamp(file string, now time.Time) error {
	if info, err := os.Stat(file); err == nil && info.ModTime().After(now.AddDate(1, 0, 0)) {
		return nil
	}
	young := now.AddDate(100, 0, 0)
	return errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, young, young))
}

// A stamp that changed with every run made internal/arch run again each time: forty seconds.
func TestStampIsYoungAndStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), stamp)
	require.NoError(t, os.WriteFile(file, nil, 0o600), "one of an earlier version")
	var times []time.Time
	for range 2 {
		require.NoError(t, makeStamp(file, time.Now()))
		info, err := os.Stat(file)
		require.NoError(t, err)
		times = append(times, info.ModTime())
	}
	assert.Greater(t, time.Until(times[0]), time.Hour)
	assert.Equal(t, times[0], times[1])
}

func TestNotice(t *testing.T) {
	everything := map[string]string{wantServers: "1"}
	for _, s := range servers {
		everything[s.variable] = "somewhere"
	}
	env := func(without ...string) func(string) string {
		return func(name string) string {
			if slices.Contains(without, name) {
				return ""
			}
			return everything[name]
		}
	}
	modules := []string{"bench", "integration"}

	assert.Empty(t, notice(env(), modules), "with everything there")
	got := notice(env("ONCEWARD_KAFKA"), modules)
	assert.Contains(t, got, "Apache Kafka (one node)\n")
	assert.NotContains(t, got, "Redis")
	got = notice(func(string) string { return "" }, modules)
	for _, s := range servers {
		assert.Contains(t, got, s.what)
	}
	for line := range strings.Lines(got) {
		assert.True(t, strings.HasPrefix(line, "NOT RUN: "), line)
	}
	assert.Contains(t, got, "bench, integration")
	assert.Contains(t, got, "make test")
}

func TestNestedModules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.work")
	require.NoError(t, os.WriteFile(file,
		[]byte("go 1.26\n\nuse (\n\t.\n\t./bench\n\t./cmd\n)\n"), 0o600))
	got, err := nestedModules(file)
	require.NoError(t, err)
	assert.Equal(t, []string{"bench", "cmd"}, got)
}
