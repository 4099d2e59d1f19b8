// Command redisbench measures the foundation's Redis path beside its limits, in one
// run: every round times each side once, in turn, and only ratios within a round count,
// because machines are noisy.
//
//	redisbench -redis 127.0.0.1:6379 -out results/redis.json
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

func main() {
	addr := flag.String("redis", os.Getenv("ONCEWARD_REDIS"), "host:port of a Redis to fill with test keys")
	out := flag.String("out", "", "file to write; default: print only")
	rounds := flag.Int("rounds", 9, "interleaved rounds")
	keys := flag.Int("keys", 20_000, "keys of one timing")
	flag.Parse()
	if err := run(*addr, *out, *rounds, *keys); err != nil {
		fmt.Fprintln(os.Stderr, "redisbench:", err)
		os.Exit(1)
	}
}

func run(addr, out string, rounds, keys int) error {
	if addr == "" {
		return fmt.Errorf("no Redis: set -redis or ONCEWARD_REDIS")
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 256})
	defer func() { _ = client.Close() }()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{})
	if err != nil {
		return err
	}
	d, err := dedup.New(store, dedup.Config{Namespace: "bench", Window: time.Minute, LeaseTTL: 10 * time.Second})
	if err != nil {
		return err
	}
	b := &bench{client: client, d: d, stamp: time.Now().UnixNano()}
	var rows []row
	for _, c := range b.comparisons() {
		r, err := c.measure(ctx, rounds, keys)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("%-44s %9.0f keys/s  %-34s %9.0f  ratio %5.2f [%.2f, %.2f]\n", r.Name, r.Value, r.Against, r.AgainstValue, r.Ratio, r.Spread[0], r.Spread[1])
		rows = append(rows, r)
	}
	if out == "" {
		return nil
	}
	return write(out, client, rows)
}

// row is one line of a results file.
type row struct {
	Name         string     `json:"name"`
	Value        float64    `json:"value"`
	Unit         string     `json:"unit"`
	Against      string     `json:"against"`
	AgainstValue float64    `json:"against_value"`
	Ratio        float64    `json:"ratio"`
	Spread       [2]float64 `json:"spread"`
	Rounds       int        `json:"rounds"`
	Goal         string     `json:"goal"`
	OK           bool       `json:"ok"`
}

// comparison is one workload done in two ways.
type comparison struct {
	name, against string
	goal          float64 // the least ratio to reach
	ours, theirs  func(context.Context, int) error
	share         int // divides the keys of a slow workload
}

func (c comparison) measure(ctx context.Context, rounds, keys int) (row, error) {
	keys /= max(c.share, 1)
	var ours, theirs, ratios []float64
	for i := range rounds + 1 {
		a, err := rate(ctx, keys, c.ours)
		if err != nil {
			return row{}, err
		}
		b, err := rate(ctx, keys, c.theirs)
		if err != nil {
			return row{}, err
		}
		if i == 0 {
			continue // warm-up
		}
		ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, a/b)
	}
	r := row{
		Name: c.name, Value: median(ours), Unit: "keys/s", Against: c.against, AgainstValue: median(theirs),
		Ratio: median(ratios), Spread: [2]float64{slices.Min(ratios), slices.Max(ratios)}, Rounds: rounds,
		Goal: fmt.Sprintf(">= %gx", c.goal),
	}
	r.OK = r.Ratio >= c.goal
	return r, nil
}

func rate(ctx context.Context, keys int, f func(context.Context, int) error) (float64, error) {
	runtime.GC()
	began := time.Now()
	if err := f(ctx, keys); err != nil {
		return 0, err
	}
	return float64(keys) / time.Since(began).Seconds(), nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func write(path string, client *redis.Client, rows []row) error {
	commit, _ := exec.CommandContext(context.Background(), "git", "rev-parse", "--short", "HEAD").Output()
	info, err := client.Info(context.Background(), "server").Result()
	if err != nil {
		return err
	}
	version := "unknown"
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			version = strings.TrimSpace(v)
		}
	}
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // goals read ">= 0.85x"
	enc.SetIndent("", "  ")
	err = enc.Encode(map[string]any{
		"area": "redis", "commit": strings.TrimSpace(string(commit)), "date": time.Now().UTC().Format(time.DateOnly),
		"machine":  fmt.Sprintf("%d cores, %s/%s, Redis on loopback", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		"versions": map[string]string{"go": runtime.Version(), "redis": version},
		"rows":     rows,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data.Bytes(), 0o644) // a report to be read
}
