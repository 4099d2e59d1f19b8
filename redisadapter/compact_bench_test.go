package redisadapter_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// BenchmarkServerTime runs the layouts in turns on servers of their own, with new keys. It reports
// the server's processor time for a claim and a completion, and its ratio to Full without results.
// The median of the ratios of all rounds counts, because a busy machine slows both layouts down.
func BenchmarkServerTime(b *testing.B) {
	const keys = 40_000
	measured := layouts
	stores := make([]*redisadapter.Store, len(measured))
	clients := make([]*redis.Client, len(measured))
	for i, layout := range measured {
		opts := layoutOptions("ow", layout)
		if opts.Window != 0 {
			opts.ExpectedKeys = 400_000
		}
		clients[i] = privateClient(b)
		stores[i] = openWith(b, redistest.Backend{Client: clients[i]}, opts)
		complete(b, stores[i], -100_000, 100_000, time.Hour) // buckets have their ends
	}
	next := 0
	ratios := make([][]float64, len(measured))
	us := make([][]float64, len(measured))
	for b.Loop() {
		for i := range measured {
			before := serverTime(b, clients[i])
			complete(b, stores[i], next, keys, time.Hour)
			us[i] = append(us[i], float64((serverTime(b, clients[i])-before).Microseconds())/keys)
		}
		for i := range measured {
			last := len(us[i]) - 1
			ratios[i] = append(ratios[i], us[i][last]/us[0][last])
		}
		next += keys
	}
	for i, layout := range measured {
		b.ReportMetric(middle(us[i]), layout.String()+"-us/key")
		b.ReportMetric(middle(ratios[i]), layout.String()+"-ratio")
	}
}

func serverTime(b *testing.B, client *redis.Client) (sum time.Duration) {
	b.Helper()
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(infoOf(b, client, "cpu", field), 64)
		require.NoError(b, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
