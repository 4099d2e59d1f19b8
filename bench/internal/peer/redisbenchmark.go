package peer

import (
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/onceward/onceward/bench/internal/must"
)

// RedisBenchmarkPath is where the program redis-benchmark lies, or "".
func RedisBenchmarkPath() string {
	path, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return ""
	}
	return path
}

// RedisBenchmark runs Redis's own load generator with single SETs, depth of them in one
// pipeline, and returns SETs per second. It is the server's limit, measured in C by its
// authors, for half of a cycle.
func RedisBenchmark(ctx context.Context, path, addr string, depth, requests int) float64 {
	host, port, err := net.SplitHostPort(addr)
	must.Do(err)
	out := must.Get(exec.CommandContext(ctx, path, "-h", host, "-p", port, "-c", "50",
		"-P", strconv.Itoa(depth), "-n", strconv.Itoa(requests), "-r", "1000000000", "--csv",
		"SET", "bench:redis-benchmark:__rand_int__", token, "NX",
		"PX", strconv.FormatInt(Lease.Milliseconds(), 10)).Output())
	return must.Get(parseRedisBenchmark(string(out)))
}

// parseRedisBenchmark reads the rate of the only test: a header that has the column "rps",
// then one line. (Before Redis 7 there was no header; those columns are not read.)
func parseRedisBenchmark(text string) (float64, error) {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(records) != 2 {
		return 0, fmt.Errorf("peer: redis-benchmark: want a header and a result: %.200q: %w",
			text, err)
	}
	column := slices.Index(records[0], "rps")
	if column < 0 {
		return 0, fmt.Errorf("peer: redis-benchmark: no column rps in %q", records[0])
	}
	rate, err := strconv.ParseFloat(records[1][column], 64)
	if err != nil || rate <= 0 {
		return 0, fmt.Errorf("peer: redis-benchmark: rate %q", records[1][column])
	}
	return rate, nil
}
