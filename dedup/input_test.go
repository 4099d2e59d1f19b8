package dedup_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// wantInput insists on an error that names the field and contains none of the secrets.
func wantInput(t *testing.T, err error, field string, secrets ...string) {
	t.Helper()
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	require.Equal(t, field, input.Field)
	assert.True(t, !dedup.CanRetry(err) && !dedup.OutcomeUnknown(err),
		"%v counts as retryable or unknown", err)
	for _, secret := range secrets {
		assert.False(t, len(secret) > 3 && strings.Contains(err.Error(), secret),
			"the error gives the text away: %v", err)
	}
}

func TestNewRefusesABadConfiguration(t *testing.T) {
	const smallest, largest = math.MinInt64, math.MaxInt64
	for name, row := range map[string]struct {
		field  string
		change func(*dedup.Config)
	}{
		"no namespace": {"Namespace", func(c *dedup.Config) { c.Namespace = "" }},
		"long namespace": {"Namespace", func(c *dedup.Config) {
			c.Namespace = strings.Repeat("n", 65)
		}},
		"namespace with a colon":    {"Namespace", func(c *dedup.Config) { c.Namespace = "a:b" }},
		"namespace with a brace":    {"Namespace", func(c *dedup.Config) { c.Namespace = "{a}" }},
		"namespace not in ASCII":    {"Namespace", func(c *dedup.Config) { c.Namespace = "größe" }},
		"no window":                 {"Window", func(c *dedup.Config) { c.Window = 0 }},
		"negative window":           {"Window", func(c *dedup.Config) { c.Window = -time.Hour }},
		"smallest window":           {"Window", func(c *dedup.Config) { c.Window = smallest }},
		"endless window":            {"Window", func(c *dedup.Config) { c.Window = largest }},
		"no lease":                  {"LeaseTTL", func(c *dedup.Config) { c.LeaseTTL = 0 }},
		"negative lease":            {"LeaseTTL", func(c *dedup.Config) { c.LeaseTTL = -1 }},
		"a lease of 30 nanoseconds": {"LeaseTTL", func(c *dedup.Config) { c.LeaseTTL = 30 }},
		"lease beyond the window": {"LeaseTTL", func(c *dedup.Config) {
			c.LeaseTTL = c.Window + 1
		}},
		"negative hold":    {"Hold", func(c *dedup.Config) { c.Hold = -1 }},
		"endless hold":     {"Hold", func(c *dedup.Config) { c.Hold = largest }},
		"negative wait":    {"Wait", func(c *dedup.Config) { c.Wait = -1 }},
		"negative waiters": {"MaxWaiters", func(c *dedup.Config) { c.MaxWaiters = -1 }},
		"negative store timeout": {"StoreTimeout", func(c *dedup.Config) {
			c.StoreTimeout = -1
		}},
		"store timeout of a lease": {"StoreTimeout", func(c *dedup.Config) {
			c.StoreTimeout = c.LeaseTTL
		}},
		"negative result limit": {"ResultLimit", func(c *dedup.Config) { c.ResultLimit = -1 }},
		"negative cache":        {"CacheBytes", func(c *dedup.Config) { c.CacheBytes = -1 }},
		"tiny cache": {"CacheBytes", func(c *dedup.Config) {
			c.CacheBytes = 64<<10 - 1
		}},
		"a mode that is none": {"Mode", func(c *dedup.Config) { c.Mode = dedup.FailOpen + 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := dedup.Config{Namespace: "test", Window: time.Hour, LeaseTTL: 10 * time.Second}
			row.change(&cfg)
			store := hook()
			d, err := dedup.New(store, cfg)
			wantInput(t, err, "Config."+row.field)
			require.Nil(t, d, "a Deduper beside the error")
			require.Equal(t, 0, store.count())
		})
	}
}

// pointerStore and mapStore are stores whose own value may be nil.
type pointerStore struct{ dedup.Store }

type mapStore map[string]dedup.Store

func (mapStore) Claim(context.Context, []driver.ClaimRequest) []driver.Answer { return nil }
func (mapStore) Renew(context.Context, []driver.Renewal) []driver.Answer      { return nil }
func (mapStore) Finish(context.Context, []driver.Finish) []driver.Answer      { return nil }
func (mapStore) Lookup(context.Context, []driver.ID) []driver.Answer          { return nil }
func (mapStore) Forget(context.Context, []driver.ID, time.Duration) []error   { return nil }

// A program may ignore the error of a store's constructor and pass the nil pointer on, in an
// interface that is not nil. Without a check that program panics at its first claim.
func TestNewRefusesAStoreThatCannotWork(t *testing.T) {
	cfg := dedup.Config{Namespace: "test", Window: time.Hour, LeaseTTL: time.Second}
	for name, row := range map[string]struct {
		store         dedup.Store
		field, reason string
	}{
		"nil":         {nil, "Store", "is nil"},
		"nil pointer": {(*pointerStore)(nil), "Store", "is a nil *dedup_test.pointerStore"},
		"nil map":     {mapStore(nil), "Store", "is a nil dedup_test.mapStore"},
		"no capacity": {dedup.Memory(0), "capacity", "of Memory is 0, at least 1 is needed"},
		"negative capacity": {dedup.Memory(-1), "capacity",
			"of Memory is -1, at least 1 is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := dedup.New(row.store, cfg)
			wantInput(t, err, row.field)
			require.Nil(t, d, "a Deduper beside the error")
			require.Equal(t, "dedup: "+row.field+" "+row.reason, err.Error())
		})
	}
	for name, store := range map[string]dedup.Store{"pointer": &pointerStore{},
		"struct": pointerStore{}, "map": mapStore{}} {
		_, err := dedup.New(store, cfg)
		assert.NoError(t, err, name)
	}
}

func TestNewTakesTheLimitsThemselves(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, change := range map[string]func(*dedup.Config){
		"shortest lease":   func(c *dedup.Config) { c.LeaseTTL = 50 * time.Millisecond },
		"longest window":   func(c *dedup.Config) { c.Window = 10 * year },
		"longest hold":     func(c *dedup.Config) { c.Hold = 10 * year },
		"lease of window":  func(c *dedup.Config) { c.LeaseTTL = c.Window },
		"longest name":     func(c *dedup.Config) { c.Namespace = strings.Repeat("n", 64) },
		"every character":  func(c *dedup.Config) { c.Namespace = "azAZ09_.-" },
		"observe":          func(c *dedup.Config) { c.Mode = dedup.Observe },
		"endless patience": func(c *dedup.Config) { c.Wait = math.MaxInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeduper(t, dedup.Memory(10), change)
			_, err := do(t, d, "k", returns("v"))
			require.NoError(t, err)
		})
	}
}

type badRequest struct {
	field string
	key   string
	opts  []dedup.Option
}

func badRequests() map[string]badRequest {
	const long = "secret-order-4711-"
	label := func(s string) []dedup.Option {
		return []dedup.Option{func(r *dedup.Request) { r.Label = s }}
	}
	scope := func(s string) []dedup.Option { return []dedup.Option{dedup.WithScope(s)} }
	return map[string]badRequest{
		"empty key":             {"Key", "", nil},
		"256 bytes":             {"Key", long + strings.Repeat("x", 256-len(long)), nil},
		"256 bytes of letters":  {"Key", strings.Repeat("é", 128), nil},
		"newline":               {"Key", long + "\n", nil},
		"NUL":                   {"Key", "\x00" + long, nil},
		"delete":                {"Key", long + "\x7f", nil},
		"zero-width joiner":     {"Key", long + "\u200d", nil},
		"right-to-left mark":    {"Key", "\u202e" + long, nil},
		"no-break space":        {"Key", long + "\u00a0", nil},
		"invalid UTF-8":         {"Key", long + "\xff", nil},
		"cut UTF-8":             {"Key", long + "\xc3", nil},
		"256 bytes of scope":    {"Scope", "k", scope(strings.Repeat("s", 256))},
		"non-printable scope":   {"Scope", "k", scope(long + "\t")},
		"invalid scope":         {"Scope", "k", scope(long + "\xfe")},
		"65 bytes of label":     {"Label", "k", label(strings.Repeat("l", 65))},
		"non-printable label":   {"Label", "k", label(long + "\r")},
		"invalid label":         {"Label", "k", label(long + "\xfe")},
		"bad scope beats label": {"Scope", "k", append(label("\r"), scope("\r")...)},
	}
}

// One bad request to every method: each returns the same clear error, and sends nothing.
func TestBadRequestsAreRefusedBeforeTheStoreIsAsked(t *testing.T) {
	for name, bad := range badRequests() {
		t.Run(name, func(t *testing.T) {
			store := hook()
			d := newDeduper(t, store, func(c *dedup.Config) {
				c.Labels, c.Mode = true, dedup.FailOpen
			})
			check := func(err error) {
				t.Helper()
				r := dedup.Request{}
				for _, opt := range bad.opts {
					opt(&r)
				}
				wantInput(t, err, bad.field, bad.key, r.Scope, r.Label, "secret-order")
			}
			_, err := dedup.Do(t.Context(), d, bad.key, mustNotRun(t), bad.opts...)
			check(err)
			c, err := d.Claim(t.Context(), bad.key, bad.opts...)
			check(err)
			assert.Nil(t, c, "a claim beside the error")
			_, err = d.Seen(t.Context(), bad.key, bad.opts...)
			check(err)
			_, err = d.Mark(t.Context(), bad.key, bad.opts...)
			check(err)
			if bad.field != "Label" { // these two take no label
				_, err = d.Lookup(t.Context(), bad.key, bad.opts...)
				check(err)
				check(d.Forget(t.Context(), bad.key, bad.opts...))
			}
			assert.Equal(t, 0, store.count(), "calls to the store")
		})
	}
}

func TestKeysAtTheLimitAreTaken(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	for _, key := range []string{"a", " ", strings.Repeat("x", 255), strings.Repeat("é", 127) + "x",
		"日本 語", "🙂"} {
		_, err := d.Mark(t.Context(), key, dedup.WithScope(strings.Repeat("s", 255)),
			func(r *dedup.Request) { r.Label = strings.Repeat("l", 64) })
		assert.NoError(t, err, key)
	}
}

// nilContext returns a nil context that compiler and linters do not notice.
func nilContext() context.Context { return nil }

func TestNilsAreRefusedBeforeTheStoreIsAsked(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, nil)
	held := acquire(t, d, "held")
	store.forgetCalls()
	var none *dedup.Deduper
	ctx, nobody := t.Context(), nilContext()
	var noClaim *dedup.Claim
	var noFunc func(context.Context) (string, error)
	errOf := func(_ any, err error) error { return err }
	for name, row := range map[string]struct {
		field string
		err   error
	}{
		"Do without Deduper":         {"Deduper", errOf(dedup.Do(ctx, none, "k", mustNotRun(t)))},
		"Do without func":            {"Func", errOf(dedup.Do(ctx, d, "k", noFunc))},
		"Do without context":         {"Context", errOf(dedup.Do(nobody, d, "k", mustNotRun(t)))},
		"Claim without Deduper":      {"Deduper", errOf(none.Claim(ctx, "k"))},
		"Claim without context":      {"Context", errOf(d.Claim(nobody, "k"))},
		"ClaimBatch without Deduper": {"Deduper", errOf(none.ClaimBatch(ctx, nil))},
		"ClaimBatch without context": {"Context",
			errOf(d.ClaimBatch(nobody, []dedup.Request{{Key: "k"}}))},
		"Seen without Deduper":   {"Deduper", errOf(none.Seen(ctx, "k"))},
		"Seen without context":   {"Context", errOf(d.Seen(nobody, "k"))},
		"Mark without Deduper":   {"Deduper", errOf(none.Mark(ctx, "k"))},
		"Mark without context":   {"Context", errOf(d.Mark(nobody, "k"))},
		"Lookup without Deduper": {"Deduper", errOf(none.Lookup(ctx, "k"))},
		"Lookup without context": {"Context", errOf(d.Lookup(nobody, "k"))},
		"Forget without Deduper": {"Deduper", none.Forget(ctx, "k")},
		"Forget without context": {"Context", d.Forget(nobody, "k")},
		"Close without Deduper":  {"Deduper", none.Close(ctx)},
		"Close without context":  {"Context", d.Close(nobody)},
		"Complete without claim": {"Claim", noClaim.Complete(ctx, nil)},
		"Complete of a zero claim": {"Claim",
			(&dedup.Claim{Outcome: dedup.Acquired}).Complete(ctx, nil)},
		"Complete without context": {"Context", held.Complete(nobody, nil)},
		"Fail without claim":       {"Claim", noClaim.Fail(ctx, errNet)},
		"Fail without cause":       {"Cause", held.Fail(ctx, nil)},
		"Release without claim":    {"Claim", noClaim.Release(ctx)},
		"batch without claim":      {"Claim", d.CompleteBatch(ctx, []dedup.Completion{{}})[0]},
		"batch without context": {"Context",
			d.CompleteBatch(nobody, []dedup.Completion{{Claim: held}})[0]},
		"batch without Deduper": {"Deduper",
			none.CompleteBatch(ctx, []dedup.Completion{{Claim: held}})[0]},
	} {
		t.Run(name, func(t *testing.T) { wantInput(t, row.err, row.field) })
	}
	for name, run := range map[string]func() (context.Context, context.CancelFunc){
		"without claim": func() (context.Context, context.CancelFunc) {
			return noClaim.KeepAlive(ctx)
		},
		"without context": func() (context.Context, context.CancelFunc) {
			return held.KeepAlive(nobody)
		},
	} {
		kept, stop := run()
		wantInput(t, context.Cause(kept), "Claim")
		t.Log(name)
		stop()
	}
	assert.Equal(t, 0, store.count(), "calls to the store")
	assert.NoError(t, held.Complete(ctx, nil), "the claim that was misused is spoilt")
}

func TestClaimsThatCannotBeEnded(t *testing.T) {
	store := hook()
	a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
	held := acquire(t, a, "k")
	other := claim(t, a, "k")
	store.forgetCalls()
	wantInput(t, b.CompleteBatch(t.Context(), []dedup.Completion{{Claim: held}})[0], "Claim")
	wantInput(t, other.Complete(t.Context(), nil), "Claim")
	wantInput(t, other.Fail(t.Context(), errNet), "Claim")
	wantInput(t, other.Release(t.Context()), "Claim")
	require.Equal(t, 0, store.count(), "calls to the store")
	require.NoError(t, held.Release(t.Context()))
	store.forgetCalls()
	wantInput(t, held.Complete(t.Context(), nil), "Claim")
	wantInput(t, held.Fail(t.Context(), errNet), "Claim")
	require.NoError(t, held.Release(t.Context()))
	require.Equal(t, 0, store.count(), "released twice")
}
