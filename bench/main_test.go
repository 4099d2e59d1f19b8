package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/filterbench"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

func TestParse(t *testing.T) {
	suite := harness.Suite{
		Area: "x", Full: harness.Scale{Rounds: 7, Keys: 100, Budget: time.Second},
		Quick: harness.Scale{Rounds: 3, Budget: time.Millisecond},
	}
	own := harness.Options{Redis: server.Private, Postgres: server.Private, MariaDB: server.Private,
		Scale: suite.Full}
	quick, list := own, harness.Options{List: true, Scale: suite.Full, Redis: server.Listed,
		Postgres: server.Listed, MariaDB: server.None}
	quick.Quick, quick.Scale = true, harness.Scale{Rounds: 3, Keys: 9, Budget: time.Millisecond}
	for args, want := range map[string]harness.Options{
		"": own, "-quick -keys 9": quick, "-list -mariadb none": list,
	} {
		got, out, err := parse(suite, strings.Fields(args))
		require.NoError(t, err, args)
		assert.Equal(t, want, got, args)
		assert.Empty(t, out)
	}
	o, _, err := parse(filterbench.Suite, nil)
	require.NoError(t, err)
	assert.Equal(t, server.Durable, o.Redis)
	full := filepath.Join(t.TempDir(), "full.json")
	require.NoError(t, os.WriteFile(full, nil, 0o600))
	for _, bad := range []string{"operand", "-rounds -1", "-time -1s", "-run x -out " + full} {
		_, _, err := parse(suite, strings.Fields(bad))
		assert.Error(t, err, bad)
	}
	_, out, err := parse(suite, []string{"-out", full})
	require.NoError(t, err, "a full run in place of another")
	assert.Equal(t, full, out)
}

// Every suite names its workloads without a server, and no two suites have the same name.
func TestSuitesList(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range suites {
		assert.False(t, seen[s.Area], s.Area)
		seen[s.Area] = true
		assert.NotEmpty(t, s.About, s.Area)
		assert.NotZero(t, s.Full.Rounds, s.Area)
		assert.NotZero(t, s.Quick.Rounds, s.Area)
		o, _, err := parse(s, []string{"-list"})
		require.NoError(t, err, s.Area)
		b := &harness.Bench{}
		s.Open(t.Context(), o, b)
		assert.NotEmpty(t, b.Groups, s.Area)
	}
}

// The documents have the tables of the checked-in results. An unknown command is an error.
func TestRun(t *testing.T) {
	require.NoError(t, run(t.Context(), []string{"table"}))
	stderr := os.Stderr
	t.Cleanup(func() { os.Stderr = stderr })
	read, write, err := os.Pipe()
	require.NoError(t, err)
	os.Stderr = write
	err = errors.Join(run(t.Context(), []string{"nothing"}), write.Close())
	require.ErrorIs(t, err, flag.ErrHelp)
	help, err := io.ReadAll(read)
	require.NoError(t, err)
	assert.NotEmpty(t, help)
}
