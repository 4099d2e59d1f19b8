package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// findingLog collects findings.
type findingLog struct {
	mu   sync.Mutex
	list []preflight.Finding
}

func (h *findingLog) add(f preflight.Finding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, f)
}

func (h *findingLog) count(code string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.list {
		if f.Code == code {
			n++
		}
	}
	return n
}

// guarded boots a deployment and opens a store of it.
func guarded(t testing.TB, client redis.UniversalClient,
	opts redisadapter.Options) (*redisadapter.Store, *findingLog) {
	t.Helper()
	must(t, redisadapter.Init(t.Context(), client, opts))
	return reopen(t, client, opts)
}

func reopen(t testing.TB, client redis.UniversalClient,
	opts redisadapter.Options) (*redisadapter.Store, *findingLog) {
	t.Helper()
	h := &findingLog{}
	opts.OnFinding = h.add
	if opts.AmnesiaFor == 0 {
		opts.AmnesiaFor = time.Hour
	}
	store, err := redisadapter.New(t.Context(), client, opts)
	must(t, err)
	return store, h
}

var failClosed = redisadapter.Options{Amnesia: redisadapter.FailClosed}

func claimOne(t testing.TB, store *redisadapter.Store, n int) driver.Answer {
	t.Helper()
	return store.Claim(t.Context(), []driver.ClaimRequest{request(n)})[0]
}

func finishOne(t testing.TB, store *redisadapter.Store, n int) {
	t.Helper()
	c := change(n, driver.StateSucceeded)
	c.EffectApplied = true
	a := store.Finish(t.Context(), []driver.Finish{c})[0]
	require.True(t, a.Written, "finish %d: %+v", n, a)
}

func wantOutcome(t testing.TB, store *redisadapter.Store, n int, want driver.Outcome) {
	t.Helper()
	a := claimOne(t, store, n)
	assert.Equal(t, want, a.Outcome, "claim %d: %+v", n, a)
	assert.Equal(t, want == dedup.Unknown, a.Err != nil, "claim %d: %+v", n, a)
}

func wantAmnesia(t testing.TB, store *redisadapter.Store, n int) {
	t.Helper()
	a := claimOne(t, store, n)
	assert.Equal(t, dedup.Unknown, a.Outcome,
		"claim %d: %+v", n, a)
	assert.ErrorIs(t, a.Err, redisadapter.ErrAmnesia,
		"claim %d: %+v", n, a)
	assert.Equal(t, "amnesia", redisadapter.Classify(a.Err),
		"claim %d: %+v", n, a)
	assert.True(t, dedup.CanRetry(a.Err), "claim %d: %+v", n, a)
}

func TestGuardRefusesBadInput(t *testing.T) {
	_, client := redistest.Mini(t)
	for field, opts := range map[string]redisadapter.Options{
		"Options.Amnesia":     {Amnesia: 9, AmnesiaFor: time.Hour},
		"Options.AmnesiaFor":  {Amnesia: redisadapter.FailClosed},
		"Options.SuspectFor":  {SuspectFor: -1},
		"Options.Secondary":   {Amnesia: redisadapter.AskSecondary, AmnesiaFor: time.Hour},
		"Options.MaxInFlight": {MaxInFlight: -1},
	} {
		_, err := redisadapter.New(t.Context(), client, opts)
		wantInput(t, err, field)
	}
	_, err := redisadapter.New(t.Context(),
		client, redisadapter.Options{Secondary: dedup.Memory(1000)})
	wantInput(t, err, "Options.Secondary")
	wantInput(t, redisadapter.Init(t.Context(), nil, redisadapter.Options{}), "Client")
	wantInput(t, redisadapter.ClearAmnesia(t.Context(), client, redisadapter.Options{Prefix: "{"}),
		"Options.Prefix")
}

// TestNoCanary: New never makes the canary. Its error names the function that does.
func TestNoCanary(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		opts := redisadapter.Options{Prefix: b.Prefix, Amnesia: redisadapter.FailClosed,
			AmnesiaFor: time.Hour}
		for range 2 {
			_, err := redisadapter.New(t.Context(), b.Client, opts)
			require.ErrorIs(t, err, redisadapter.ErrNoCanary)
			require.Contains(t, err.Error(), "redisadapter.Init", "error %v", err)
		}
		store, h := guarded(t, b.Client, opts)
		keys := redisadapter.CanaryKeys(b.Client, b.Prefix)
		first := canaryValues(t, b.Client, keys)
		must(t, redisadapter.Init(t.Context(), b.Client, opts)) // again
		for i, value := range canaryValues(t, b.Client, keys) {
			assert.Equal(t, first[i], value,
				"Init has changed %s from %q to %q", keys[i], first[i], value)
			ttl := b.Client.TTL(t.Context(), keys[i]).Val()
			assert.EqualValues(t, -1, ttl, "%s expires in %v", keys[i], ttl)
		}
		wantOutcome(t, store, 1, dedup.Acquired)
		assert.Zero(t, h.count("amnesia"), "amnesia on a healthy server: %v", h.list)
		assert.False(t, store.Health().Amnesia, "amnesia on a healthy server: %v", h.list)
	})
}

func canaryValues(t testing.TB, client redis.UniversalClient, keys []string) (values []string) {
	t.Helper()
	for _, key := range keys {
		value, err := client.Get(t.Context(), key).Result()
		must(t, err)
		values = append(values, value)
	}
	return values
}

// TestCanaryMissing: the first batch that does not find the canary gets no claims. It gets what is
// on record, and the claims that were won are given back.
func TestCanaryMissing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		opts := failClosed
		opts.Prefix = b.Prefix
		store, h := guarded(t, b.Client, opts)
		other, _ := reopen(t, b.Client, opts)
		claimOne(t, store, 1)
		finishOne(t, store, 1)
		for _, key := range redisadapter.CanaryKeys(b.Client, b.Prefix) {
			must(t, b.Client.Del(t.Context(), key).Err())
		}
		answers := store.Claim(t.Context(),
			[]driver.ClaimRequest{request(1), request(2), request(3)})
		assert.Equal(t, dedup.Duplicate, answers[0].Outcome, "what is on record: %+v", answers[0])
		for _, a := range answers[1:] {
			assert.ErrorIs(t, a.Err, redisadapter.ErrAmnesia, "claimed after a loss: %+v", a)
		}
		for i, a := range store.Lookup(t.Context(), []driver.ID{newID(2), newID(3)}) {
			assert.Equal(t, driver.StateReleased, a.Record.State,
				"claim %d was not given back: %+v", i+2, a)
			assert.Zero(t, a.Record.Attempt, "claim %d was not given back: %+v", i+2, a)
		}
		wantAmnesia(t, store, 4)
		wantAmnesia(t, other, 4) // it refuses, too, although the canary exists again
		wantOutcome(t, other, 1, dedup.Duplicate)
		late, _ := reopen(t, b.Client, opts)
		wantAmnesia(t, late, 4)
		n := h.count("amnesia")
		assert.Equal(t, 1, n, "%d findings, health %+v", n, store.Health())
		assert.True(t, store.Health().Amnesia, "%d findings, health %+v", n, store.Health())
		assert.GreaterOrEqual(t, store.Health().Remaining, 59*time.Minute,
			"%d findings, health %+v", n, store.Health())

		must(t, redisadapter.ClearAmnesia(t.Context(), b.Client, opts))
		for _, s := range []*redisadapter.Store{store, other, late} {
			eventually(t, "claims are granted again", func() bool {
				return claimOne(t, s, 4).Outcome != dedup.Unknown
			})
		}
		assert.Equal(t, 1, h.count("recovered"),
			"after the acknowledgement: %v, %+v", h.list, store.Health())
		assert.False(t, store.Health().Amnesia,
			"after the acknowledgement: %v, %+v", h.list, store.Health())
	})
}

// TestAmnesiaEnds: claims are refused for AmnesiaFor, by the server's clock from the loss.
func TestAmnesiaEnds(t *testing.T) {
	_, client := redistest.Mini(t)
	opts := failClosed
	opts.AmnesiaFor = 300 * time.Millisecond
	store, _ := guarded(t, client, opts)
	lost := time.Now() // at the earliest
	must(t, client.FlushAll(t.Context()).Err())
	wantAmnesia(t, store, 1)
	eventually(t, "the window is over", func() bool {
		return claimOne(t, store, 1).Outcome == dedup.Acquired
	})
	after := time.Since(lost)
	assert.GreaterOrEqual(t, after, 200*time.Millisecond, "over after %v", after)
	late, _ := reopen(t, client, opts)
	wantOutcome(t, late, 2, dedup.Acquired)
}

// TestInitDoesNotClearAmnesia: a deployment script may always run Init. After a flush that must not
// hide the loss from a process that has noticed it.
func TestInitDoesNotClearAmnesia(t *testing.T) {
	_, client := redistest.Mini(t)
	store, _ := guarded(t, client, failClosed)
	must(t, client.FlushAll(t.Context()).Err())
	must(t, redisadapter.Init(t.Context(), client, failClosed))
	wantAmnesia(t, store, 1)
	late, _ := reopen(t, client, failClosed)
	wantAmnesia(t, late, 1) // learns it from the first process
}

// TestStrangeCanary: a key that is not a canary any more does not prove that the server remembers.
func TestStrangeCanary(t *testing.T) {
	for name, spoil := range map[string]func(c *redis.Client, key string) error{
		"garbage": func(c *redis.Client, key string) error {
			return c.Set(context.Background(), key, "x", 0).Err()
		},
		"a list": func(c *redis.Client, key string) error {
			return errors.Join(c.Del(context.Background(), key).Err(),
				c.RPush(context.Background(), key, "x").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := redistest.Mini(t)
			store, _ := guarded(t, client, failClosed)
			must(t, spoil(client, redisadapter.CanaryKeys(client, "ow")[0]))
			wantAmnesia(t, store, 1)
		})
	}
}

// TestUnreadCanary: if the read of the canary fails, the claims of the same batch are not granted,
// whatever the policy. Other batches are not affected.
func TestUnreadCanary(t *testing.T) {
	_, client := redistest.Mini(t)
	must(t, redisadapter.Init(t.Context(), client, redisadapter.Options{}))
	value := canaryValues(t, client, redisadapter.CanaryKeys(client, "ow"))[0]
	var cut atomic.Bool
	fake := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME":
			return fmt.Sprintf("*2\r\n$10\r\n%d\r\n$1\r\n0\r\n", time.Now().Unix())
		case "GET":
			if cut.Load() {
				return ""
			}
			return redistest.Bulk(value)
		case "SET":
			return "$-1\r\n"
		}
		return redistest.Answer("absent", 0, 0, "")
	})
	fake.PoolSize = 1
	for _, policy := range []redisadapter.Amnesia{redisadapter.FailClosed,
		redisadapter.AllowAndFlag} {
		t.Run(policy.String(), func(t *testing.T) {
			cut.Store(false)
			store, _ := reopen(t, redistest.Client(t, fake),
				redisadapter.Options{Amnesia: policy, BreakerAfter: -1})
			wantOutcome(t, store, 1, dedup.Acquired)
			cut.Store(true)
			wantOutcome(t, store, 2, dedup.Unknown)
		})
	}
}

// TestClosedReturnsInTime: a store that refuses claims asks now and then whether it still must. If
// the server hangs then, the caller's context must still end the call.
func TestClosedReturnsInTime(t *testing.T) {
	_, direct := redistest.Mini(t)
	var hang atomic.Bool
	release := make(chan struct{})
	drop := false
	fake := redistest.Fake(t, func(args []string) string {
		if hang.Load() {
			<-release
			return ""
		}
		return relay(t, direct, args, nil, &drop)
	})
	t.Cleanup(func() { close(release) })
	store, _ := guarded(t, redistest.Client(t, fake),
		redisadapter.Options{Amnesia: redisadapter.FailClosed})
	must(t, direct.FlushAll(t.Context()).Err())
	wantAmnesia(t, store, 1)
	hang.Store(true)
	for begin := time.Now(); time.Since(begin) < time.Second; { // it looks again every half second
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		a := store.Claim(ctx, []driver.ClaimRequest{request(2)})[0]
		cancel()
		// without the limit it would wait forever
		took := time.Since(start)
		require.Error(t, a.Err, "it took %v: %+v", took, a)
		require.LessOrEqual(t, took, 5*time.Second, "it took %v: %+v", took, a)
	}
}

// TestRunAndFlag: AllowAndFlag grants claims after a loss, and reports them.
func TestRunAndFlag(t *testing.T) {
	_, client := redistest.Mini(t)
	store, h := guarded(t, client, redisadapter.Options{Amnesia: redisadapter.AllowAndFlag})
	wantOutcome(t, store, 1, dedup.Acquired)
	assert.Zero(t, store.Health().Flagged, "before: %+v", store.Health())
	must(t, client.FlushAll(t.Context()).Err())
	for n := range 3 {
		wantOutcome(t, store, 10+n, dedup.Acquired)
	}
	assert.EqualValues(t, 3, store.Health().Flagged, "after: %+v, %v", store.Health(), h.list)
	assert.Equal(t, 3, h.count("flagged_claims"), "after: %+v, %v", store.Health(), h.list)
	assert.Equal(t, 1, h.count("amnesia"), "after: %+v, %v", store.Health(), h.list)
}

// second is a second store that can be made to fail.
type second struct {
	dedup.Store
	err   error
	short bool
}

func (s *second) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	answers := s.Store.Lookup(ctx, ids)
	for i := range answers {
		if s.err != nil {
			answers[i] = driver.Answer{Err: s.err}
		}
	}
	if s.short {
		return nil
	}
	return answers
}

// TestSecondStore: only after a loss the second store is asked, and then about each claim.
func TestSecondStore(t *testing.T) {
	_, client := redistest.Mini(t)
	memory := dedup.Memory(1000)
	other := &second{Store: memory, err: errors.New("must not be asked")}
	store, _ := guarded(t, client,
		redisadapter.Options{Amnesia: redisadapter.AskSecondary, Secondary: other})
	memory.Claim(t.Context(), []driver.ClaimRequest{request(1), request(2)})
	done := change(1, driver.StateSucceeded)
	done.Result = []byte("receipt")
	memory.Finish(t.Context(), []driver.Finish{done})
	wantOutcome(t, store, 9, dedup.Acquired) // nothing is lost, so the second store is not asked

	must(t, client.FlushAll(t.Context()).Err())
	wantOutcome(t, store, 3, dedup.Unknown) // the second store is asked, and its answer is an error
	other.err, other.short = nil, true
	wantOutcome(t, store, 3, dedup.Unknown)
	other.short = false
	a := claimOne(t, store, 1)
	assert.Equal(t, dedup.Duplicate, a.Outcome, "done there: %+v", a)
	assert.Equal(t, "receipt", string(a.Record.Result), "done there: %+v", a)
	a = store.Lookup(t.Context(), []driver.ID{newID(1)})[0]
	assert.Equal(t, driver.StateReleased, a.Record.State, "the claim was not given back: %+v", a)
	wantOutcome(t, store, 2, dedup.InFlight)
	wantOutcome(t, store, 3, dedup.Acquired) // neither store knows it
	odd := request(1)
	odd.Fingerprint = driver.FingerprintOf([]byte("a"))
	memory.Claim(t.Context(), []driver.ClaimRequest{{ID: newID(4), Token: driver.Token{4},
		Lease: time.Minute, Hold: time.Hour, Fingerprint: driver.FingerprintOf([]byte("b"))}})
	odd.ID = newID(4)
	a = store.Claim(t.Context(), []driver.ClaimRequest{odd})[0]
	assert.Equal(t, dedup.Mismatch, a.Outcome, "another payload: %+v", a)
}

// suspectFor is longer than a busy machine takes to see that a store is closed.
const suspectFor = 4 * time.Second

// TestIdentity: when another server answers on a new connection, its identity is compared before a
// claim is granted. A restart that may have lost the writes after a snapshot counts as a loss.
func TestIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		change  map[string]string
		suspect bool
		lost    bool
	}{
		"the same": {nil, false, false},
		"promoted": {map[string]string{"run_id": "r2", "master_replid": "p2",
			"uptime_in_seconds": "3600"}, true, false},
		"replication id": {map[string]string{"master_replid": "p2"}, true, false},
		"restarted, with file": {map[string]string{"run_id": "r2", "uptime_in_seconds": "0"},
			true, false},
		"restarted, without": {map[string]string{"run_id": "r2", "uptime_in_seconds": "0",
			"aof_enabled": "0"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mini, direct := redistest.Mini(t)
			_ = mini
			fields, drop := map[string]string(nil), false
			fake := redistest.Fake(t, func(args []string) string {
				return relay(t, direct, args, fields, &drop)
			})
			fake.PoolSize = 1
			fake.MaxRetries = 2
			store, h := guarded(t, redistest.Client(t, fake),
				redisadapter.Options{Amnesia: redisadapter.FailClosed, SuspectFor: suspectFor})
			wantOutcome(t, store, 1, dedup.Acquired)
			fields, drop = c.change, true // the connection breaks, and then another server answers
			switch {
			case c.suspect:
				wantAmnesia(t, store, 2)
			default:
				wantOutcome(t, store, 2, dedup.Acquired)
			}
			assert.Equal(t, c.suspect, h.count("suspect") > 0, "findings %v", h.list)
			assert.Equal(t, c.lost, h.count("amnesia") > 0, "findings %v", h.list)
			if c.lost {
				return
			}
			eventually(t, "it is closed for a moment only", func() bool {
				return claimOne(t, store, 3).Outcome == dedup.Acquired
			})
		})
	}
}

// relay hands a command to a server, but for INFO, and cuts the connection once.
func relay(t testing.TB, to *redis.Client, args []string, fields map[string]string,
	drop *bool) string {
	if *drop {
		*drop = false
		return ""
	}
	if strings.EqualFold(args[0], "INFO") {
		return infoReply(fields)
	}
	v, err := to.Do(context.Background(), anys(args)...).Result()
	if errors.Is(err, redis.Nil) {
		return "$-1\r\n"
	}
	if err != nil {
		return "-" + err.Error() + "\r\n"
	}
	return rawReply(v)
}

func rawReply(v any) string {
	switch v := v.(type) {
	case string:
		return redistest.Bulk(v)
	case int64:
		return fmt.Sprintf(":%d\r\n", v)
	case []any:
		text := fmt.Sprintf("*%d\r\n", len(v))
		for _, e := range v {
			text += rawReply(e)
		}
		return text
	}
	return "$-1\r\n"
}

func FuzzCanary(f *testing.F) {
	f.Add("1 ok 00112233445566778899aabbccddeeff")
	f.Add("1 lost 00112233445566778899aabbccddeeff 1700000000000")
	f.Add("1 lost 00112233445566778899aabbccddeeff -1")
	f.Fuzz(func(t *testing.T, value string) {
		state, err := redisadapter.ParseCanary(value)
		assert.False(t, err == nil && !strings.HasPrefix(value, "1 "+state+" "),
			"%q has state %q", value, state)
	})
}
