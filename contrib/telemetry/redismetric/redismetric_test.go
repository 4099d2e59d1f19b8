package redismetric

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

func observed(t *testing.T) (*Metrics, func() map[string]float64) {
	t.Helper()
	provider, collect := metrictest.New(t)
	m, err := New(provider, metrictest.Name)
	require.NoError(t, err)
	return m, collect
}

func TestFindings(t *testing.T) {
	m, collect := observed(t)
	m.OnFinding(preflight.Finding{Code: "amnesia", Severity: preflight.Critical,
		Server: "10.0.0.1:6379"})
	m.OnFinding(preflight.Finding{Code: "evicted_keys", Severity: preflight.Warning,
		Detail: "3 keys"})
	m.OnFinding(preflight.Finding{Code: "evicted_keys", Severity: preflight.Warning,
		Detail: "4 keys"})
	m.OnFinding(preflight.Finding{Code: "made_up", Severity: 9})
	got := collect()
	assert.Len(t, got, 3)
	assert.EqualValues(t, 1,
		got["onceward.redis.findings{redis.code=amnesia,redis.severity=critical}"])
	assert.EqualValues(t, 2,
		got["onceward.redis.findings{redis.code=evicted_keys,redis.severity=warning}"])
	assert.EqualValues(t, 1,
		got["onceward.redis.findings{redis.code=other,redis.severity=critical}"])
}

// A code that package redisadapter has and this one does not would be counted as "other".
func TestEveryCodeIsKnown(t *testing.T) {
	source, err := os.ReadFile("../../../redisadapter/internal/wire/advice.go")
	require.NoError(t, err)
	var declared []string
	for _, code := range regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"`).FindAllStringSubmatch(
		string(source), -1) {
		declared = append(declared, code[1])
	}
	require.Greater(t, len(declared), 20, "advice.go is written otherwise")
	assert.ElementsMatch(t, declared, codes)
}

func TestHealth(t *testing.T) {
	m, collect := observed(t)
	now := redisadapter.Health{Amnesia: true, Remaining: time.Minute, Flagged: 7, BreakerOpen: true,
		InFlight: 3}
	require.NoError(t, m.observe(func() redisadapter.Health { return now }))
	got := collect()
	for name, wanted := range map[string]float64{"amnesia": 1, "suspect": 0,
		"amnesia.remaining": 60, "flagged": 7, "breaker.open": 1, "pipelines": 3} {
		v, is := got["onceward.redis."+name]
		assert.True(t, is, "%s is %v, want %v", name, v, wanted)
		assert.Equal(t, wanted, v, "%s is %v", name, v)
	}
	now = redisadapter.Health{Suspect: true, Remaining: -time.Second, Flagged: 7}
	got = collect()
	assert.Zero(t, got["onceward.redis.amnesia"], "afterwards %v", got)
	assert.EqualValues(t, 1, got["onceward.redis.suspect"], "afterwards %v", got)
	assert.Zero(t, got["onceward.redis.amnesia.remaining"], "afterwards %v", got)
	assert.Error(t, m.ObserveStore(nil), "a nil store is no error")
	assert.Error(t, m.observe(nil), "a second store is no error")
	require.NoError(t, m.Close())
	got = collect()
	assert.Len(t, got, 1, "after Close")
	assert.Zero(t, got["onceward.redis.findings{redis.code=evicted_keys,redis.severity=warning}"],
		"after Close")
}

func TestNewRefuses(t *testing.T) {
	_, err := New(nil, "x")
	assert.Error(t, err, "no provider is no error")
	_, err = New(sdk.NewMeterProvider(), "")
	assert.Error(t, err, "no name is no error")
}

// A store of a real server: its health is collected, and findings of New come through the hook.
func TestStoreOfAServer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t)})
	defer func() { _ = client.Close() }()
	m, collect := observed(t)
	told := 0
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t), OnFinding: func(f preflight.Finding) {
			told++
			m.OnFinding(f)
		}})
	require.NoError(t, err)
	require.NoError(t, m.ObserveStore(store))
	counted := 0.0
	var got map[string]float64
	// the pipeline of New may end a moment after its answer
	require.Eventually(t, func() bool {
		got = collect()
		return got["onceward.redis.pipelines"] == 0
	}, 10*time.Second, time.Millisecond)
	for name, value := range got {
		if strings.HasPrefix(name, "onceward.redis.findings") {
			counted += value
		}
	}
	assert.Equal(t, float64(told), counted, "%d findings were told, counted", told)
	for _, name := range []string{"amnesia", "suspect", "amnesia.remaining", "flagged",
		"breaker.open", "pipelines"} {
		value, is := got["onceward.redis."+name]
		assert.True(t, is, "%s is %v, there: %v", name, value, is)
		assert.Zero(t, value, "%s is %v, there: %v", name, value, is)
	}
}
