package server

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/resp"
)

func TestDelay(t *testing.T) {
	const oneWay = 15 * time.Millisecond
	setup := &harness.Setup{}
	c := resp.Dial(t.Context(), Delay(t.Context(), setup, miniredis.RunT(t).Addr(), oneWay))
	defer func() { _ = c.Close() }()
	keys := strings.Fields("a b c d e")
	began := time.Now()
	c.ClaimNew(t.Context(), keys, strings.Repeat("x", 100_000), time.Minute)
	assert.GreaterOrEqual(t, time.Since(began), 2*oneWay, "a round trip")
	c.MGet(t.Context(), keys) // 500 kB back, in order
	require.NoError(t, setup.Close())
	require.Error(t, must.Try(func() { c.MGet(t.Context(), keys) }),
		"a closed proxy passes commands on")
}

func TestPrivate(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		require.Empty(t, os.Getenv("ONCEWARD_REQUIRE_SERVERS"), "no redis-server: %v", err)
		t.Skip("NOT RUN: no redis-server: ", err) // go test alone needs no server
	}
	b := &harness.Bench{}
	s := Open(t.Context(), b, Private)
	assert.Equal(t, []*harness.Server{&s.Server}, b.Servers)
	assert.NotEmpty(t, s.Version(t.Context()))
	assert.Positive(t, s.CPU()(t.Context()))
	assert.Positive(t, s.Memory(t.Context()))
	s.Empty(t.Context())
	require.NoError(t, s.Close())
	require.Error(t, must.Try(func() { Open(t.Context(), b, s.Addr) }), "it still runs")
}

func TestOthersServerIsNotEmptied(t *testing.T) {
	mini := miniredis.RunT(t)
	s := Open(t.Context(), &harness.Bench{}, mini.Addr())
	defer func() { _ = s.Close() }()
	require.NoError(t, mini.Set("theirs", "1"))
	require.Error(t, must.Try(func() { s.Empty(t.Context()) }))
	s.Clear(t.Context())
	assert.True(t, mini.Exists("theirs"))
}

// A core is busy only until the setup ends.
func TestBusy(t *testing.T) {
	s := &harness.Setup{}
	Busy(s)
	require.NoError(t, s.Close())
}
