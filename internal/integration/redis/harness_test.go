// Package redis_test runs the Redis store on real topologies while they change under it.
package redis_test

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestMain lets more tests run at a time than there are processors: they mostly wait for
// servers to be replaced, and for leases to end. An explicit -parallel is kept.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "3"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// single returns a client that is closed when t ends.
func single(t *testing.T, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// info returns a number that INFO reports.
func info(t *testing.T, client *redis.Client, field string) int {
	t.Helper()
	text, err := client.Info(t.Context()).Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("INFO has no %s", field)
	return 0
}

// slowness is how much longer than its limit an event may take. Limits are chosen for a quiet
// machine, and only a failing test waits that long.
const slowness = 4

// eventually polls until yes returns true, and fails the test if that takes longer than limit
// allows.
func eventually(t *testing.T, limit time.Duration, what string, yes func() bool) {
	t.Helper()
	deadline := time.NewTimer(slowness * limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", slowness*limit, what)
		}
	}
}
