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
	if err != nil {
		t.Fatal(err)
	}
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
	if len(got) != 3 || got["onceward.redis.findings{redis.code=amnesia,redis.severity=critical}"] != 1 || got["onceward.redis.findings{redis.code=evicted_keys,redis.severity=warning}"] != 2 ||
		got["onceward.redis.findings{redis.code=other,redis.severity=critical}"] != 1 {
		t.Errorf("found %v", got)
	}
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
	if err := m.observe(func() redisadapter.Health { return now }); err != nil {
		t.Fatal(err)
	}
	got := collect()
	for name, wanted := range map[string]float64{"amnesia": 1, "suspect": 0,
		"amnesia.remaining": 60, "flagged": 7, "breaker.open": 1, "pipelines": 3} {
		if v, is := got["onceward.redis."+name]; !is || v != wanted {
			t.Errorf("%s is %v, want %v", name, v, wanted)
		}
	}
	now = redisadapter.Health{Suspect: true, Remaining: -time.Second, Flagged: 7}
	if got = collect(); got["onceward.redis.amnesia"] != 0 || got["onceward.redis.suspect"] != 1 ||
		got["onceward.redis.amnesia.remaining"] != 0 {
		t.Errorf("afterwards %v", got)
	}
	if err := m.ObserveStore(nil); err == nil {
		t.Error("a nil store is no error")
	}
	if err := m.observe(nil); err == nil {
		t.Error("a second store is no error")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if got = collect(); len(got) != 1 ||
		got["onceward.redis.findings{redis.code=evicted_keys,redis.severity=warning}"] != 0 {
		t.Errorf("after Close there is %v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, "x"); err == nil {
		t.Error("no provider is no error")
	}
	if _, err := New(sdk.NewMeterProvider(), ""); err == nil {
		t.Error("no name is no error")
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ObserveStore(store); err != nil {
		t.Fatal(err)
	}
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
	if counted != float64(told) {
		t.Errorf("%d findings were told, %v counted", told, counted)
	}
	for _, name := range []string{"amnesia", "suspect", "amnesia.remaining", "flagged",
		"breaker.open", "pipelines"} {
		if value, is := got["onceward.redis."+name]; !is || value != 0 {
			t.Errorf("%s is %v, there: %v", name, value, is)
		}
	}
}
