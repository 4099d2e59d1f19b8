package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// fakeStore is a Store whose server is healthy when New asks it. After that, answer returns its
// reply to every script. It does not return the time, so claims are scripts, too.
func fakeStore(t *testing.T, answer func(args []string) string) *redisadapter.Store {
	t.Helper()
	opened := false // New uses the only connection first, and the test uses it after that
	opts := redistest.Fake(t, func(args []string) string {
		switch {
		case strings.EqualFold(args[0], "TIME"):
			return "-ERR unknown command 'time'\r\n"
		case opened:
			return answer(args)
		case strings.EqualFold(args[0], "PING"):
			return "+PONG\r\n"
		case strings.EqualFold(args[0], "INFO"):
			return info("7.0.15")
		}
		opened = true
		return redistest.Answer("absent", 0, 0, "")
	})
	opts.PoolSize = 1
	store, err := redisadapter.New(t.Context(), redistest.Client(t, opts), redisadapter.Options{})
	must(t, err)
	return store
}

func newID(n int) driver.ID { return driver.ID{byte(n), byte(n >> 8), 0xee} }

func request(n int) driver.ClaimRequest {
	return driver.ClaimRequest{ID: newID(n), Token: driver.Token{byte(n), 1}, Lease: time.Minute,
		Hold: time.Hour}
}

func change(n int, state driver.State) driver.Finish {
	return driver.Finish{
		ID: newID(n), Token: driver.Token{byte(n), 1}, State: state, Lease: time.Minute,
		Hold: time.Hour, Window: time.Hour,
	}
}

func renewal(n int) driver.Renewal { return renewalOf(change(n, 0)) }

func renewalOf(c driver.Finish) driver.Renewal {
	return driver.Renewal{ID: c.ID, Token: c.Token, Fence: c.Fence, Lease: c.Lease, Hold: c.Hold,
		Window: c.Window}
}

// TestServerErrors: a refusal is not an answer. No item is reported as absent, as a duplicate, or
// as lost.
func TestServerErrors(t *testing.T) {
	for reply, c := range map[string]struct {
		class string
		is    error
	}{
		"LOADING Redis is loading the dataset in memory": {
			"loading", nil},
		"READONLY You can't write against a read only replica.": {
			"read_only", nil},
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to": {
			"misconf", nil},
		"OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:3.": {
			"full", driver.ErrStoreFull},
		"CLUSTERDOWN Hash slot not served": {
			"cluster_down", nil},
		"TRYAGAIN Multiple keys request during rehashing of slot": {
			"try_again", nil},
		"NOREPLICAS Not enough good replicas to write.": {
			"no_replicas", nil},
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": {
			"master_down", nil},
		"MOVED 3999 127.0.0.1:6381": {
			"moved", nil},
		"ASK 3999 127.0.0.1:6381": {
			"moved", nil},
		"BUSY Redis is busy running a script.": {
			"busy", nil},
		"ERR max number of clients reached": {
			"busy", nil},
		"NOAUTH Authentication required.": {
			"denied", nil},
		"NOPERM this user has no permissions to access one of the keys": {
			"denied", nil},
		"WRONGTYPE Operation against a key holding the wrong kind of value": {
			"unreadable", driver.ErrUnreadable},
		"ERR something new": {"other", nil},
	} {
		word, _, _ := strings.Cut(reply, " ")
		t.Run(word, func(t *testing.T) {
			store := fakeStore(t, func([]string) string { return "-" + reply + "\r\n" })
			check := func(call string, err error) {
				t.Helper()
				got := redisadapter.Classify(err)
				assert.Equal(t, c.class, got,
					"%s: class %q of %v, want %q", call, got, err, c.class)
				assert.False(t, c.is != nil && !errors.Is(err, c.is),
					"%s: %v is no %v", call, err, c.is)
				assert.False(t, !errors.Is(c.is, driver.ErrUnreadable) && !dedup.CanRetry(err),
					"%s: %v is not retryable", call, err)
			}
			for _, a := range allAnswers(t, store) {
				check(a.call, a.Err)
				assert.Equal(t, dedup.Unknown, a.Outcome, "%s: learnt %+v", a.call, a.Answer)
				assert.False(t, a.Held, "%s: learnt %+v", a.call, a.Answer)
				assert.False(t, a.Written, "%s: learnt %+v", a.call, a.Answer)
				assert.Equal(t, driver.StateAbsent, a.Record.State,
					"%s: learnt %+v", a.call, a.Answer)
			}
			check("Forget", store.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0])
		})
	}
}

type namedAnswer struct {
	call string
	driver.Answer
}

// allAnswers calls every method that answers, with two items.
func allAnswers(t *testing.T, store *redisadapter.Store) (all []namedAnswer) {
	t.Helper()
	add := func(call string, answers []driver.Answer) {
		require.Len(t, answers, 2, "%s answered %d of 2 items", call, len(answers))
		for _, a := range answers {
			all = append(all, namedAnswer{call, a})
		}
	}
	ctx := t.Context()
	add("Claim", store.Claim(ctx, []driver.ClaimRequest{request(1), request(2)}))
	add("Renew", store.Renew(ctx, []driver.Renewal{renewal(1), renewal(2)}))
	for _, state := range []driver.State{driver.StateSucceeded, driver.StateFailed,
		driver.StateReleased} {
		add("Finish "+state.String(),
			store.Finish(ctx, []driver.Finish{change(1, state), change(2, state)}))
	}
	add("Lookup", store.Lookup(ctx, []driver.ID{newID(1), newID(2)}))
	return all
}

// TestCutInTheMiddle: answers that arrived before the connection broke are kept.
func TestCutInTheMiddle(t *testing.T) {
	record := redisadapter.Golden(t, "succeeded_full")
	answered := 0
	store := fakeStore(t, func([]string) string {
		switch answered++; answered {
		case 1:
			return redistest.Answer("duplicate", 1000, 5, record)
		case 2:
			return "-LOADING one moment\r\n"
		case 3:
			return redistest.Answer("in_flight", 1000, 0, redisadapter.Golden(t, "in_progress"))
		}
		return ""
	})
	answers := store.Claim(t.Context(),
		[]driver.ClaimRequest{request(1), request(2), request(3), request(4), request(5)})
	a := answers[0]
	assert.NoError(t, a.Err)
	assert.Equal(t, dedup.Duplicate, a.Outcome, "item 0: %+v", a)
	assert.Equal(t, 3, a.Record.Attempt, "item 0: %+v", a)
	assert.Equal(t, 5*time.Millisecond, a.Record.Age, "item 0: %+v", a)
	a = answers[2]
	assert.NoError(t, a.Err)
	assert.Equal(t, dedup.InFlight, a.Outcome, "item 2: %+v", a)
	assert.Equal(t, time.Second, a.Record.Remaining, "item 2: %+v", a)
	for _, i := range []int{1, 3, 4} {
		a := answers[i]
		assert.Equal(t, dedup.Unknown, a.Outcome, "item %d: %+v", i, a)
		assert.Error(t, a.Err, "item %d: %+v", i, a)
		assert.True(t, dedup.CanRetry(a.Err), "item %d: %+v", i, a)
	}
	c := redisadapter.Classify(answers[4].Err)
	assert.Equal(t, "network", c, "class %s of %v", c, answers[4].Err)
}

// TestStrangeAnswers: replies of a script of another version, or of a proxy, are errors and not
// answers.
func TestStrangeAnswers(t *testing.T) {
	for name, reply := range map[string]string{
		"unknown word": redistest.Answer("granted", 1, 1, redisadapter.Golden(t, "in_progress")),
		"bad record": redistest.Answer("acquired", 1,
			1, "record of another version, and long enough"),
		"not an array": ":1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			store := fakeStore(t, func([]string) string { return reply })
			a := store.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
			assert.Error(t, a.Err, "Claim: %+v", a)
			assert.Equal(t, dedup.Unknown, a.Outcome, "Claim: %+v", a)
			a = store.Finish(t.Context(), []driver.Finish{change(1, driver.StateSucceeded)})[0]
			assert.Error(t, a.Err, "Finish: %+v", a)
			assert.False(t, a.Written, "Finish: %+v", a)
			assert.False(t, a.Held, "Finish: %+v", a)
			a = store.Renew(t.Context(), []driver.Renewal{renewal(1)})[0]
			assert.Error(t, a.Err, "Renew: %+v", a)
			assert.False(t, a.Held, "Renew: %+v", a)
		})
	}
}

func TestClassify(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{context.Canceled, "context"},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), "context"},
		{os.ErrDeadlineExceeded, "timeout"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timeout"},
		{redis.ErrPoolTimeout, "timeout"},
		{refused, "network"},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, refused), "network"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "network"},
		{io.EOF, "network"},
		{io.ErrUnexpectedEOF, "network"},
		{redis.ErrClosed, "network"},
		{fmt.Errorf("a: %w", driver.ErrUnreadable), "unreadable"},
		{redis.ErrCrossSlot, "other"},
		{errors.New("what"), "other"},
	} {
		got := redisadapter.Classify(c.err)
		assert.Equal(t, c.want, got, "Classify(%v)", c.err)
	}
}
