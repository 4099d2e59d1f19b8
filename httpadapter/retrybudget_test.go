package httpadapter_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func newBudget(t *testing.T, cfg httpadapter.RetryBudgetConfig) *httpadapter.RetryBudget {
	t.Helper()
	budget, err := httpadapter.NewRetryBudget(cfg)
	require.NoError(t, err)
	return budget
}

// small accepts three retries at once and one each second.
var small = httpadapter.RetryBudgetConfig{Most: 3}

// unread makes a request whose body must not be read.
func unread(r *http.Request) {
	r.Body = readCloser{iotest.ErrReader(errors.New("was read"))}
}

// A storm of retries by one account is refused. Meanwhile new requests of that account, and retries
// of another account, are answered.
func TestStormOfRetriesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{RetryBudget: newBudget(t, small)}, created())
		other := header("X-Account", "other")
		s.post("k", "{}")
		s.post("k", "{}", other)
		for range 3 {
			wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
		}
		for i := range 50 {
			wantProblem(t, s.post("k", "{}", unread), 429, "too-many-retries", retryInOne)
			if i < 3 {
				wantAnswer(t, s.post("k", "{}", other), 201, "paid", replayed)
			}
			if i < 5 { // five new requests deposit half a retry
				wantAnswer(t, s.post(fmt.Sprint("new-", i), "{}"), 201, "paid", firstTime)
			}
		}
		s.wantRuns(t, 2+5)
		time.Sleep(time.Second) // the time of Retry-After
		wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
		wantProblem(t, s.post("k", "{}", unread), 429, "too-many-retries", retryInOne)
	})
}

// While no time passes, only new requests pay for retries.
func TestNewRequestsPayForRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(t, httpadapter.RetryBudgetConfig{Ratio: 0.25, Most: 1})
		s := newService(t, httpadapter.Config{RetryBudget: budget}, created())
		s.post("k", "")
		retries := 0
		for i := range 100 {
			s.post(fmt.Sprint("new-", i), "")
			if s.post("k", "").Code == http.StatusCreated {
				retries++
			}
		}
		assert.Equal(t, 1+(100-1)/4, retries)
		assert.Equal(t, httpadapter.RetryStats{Admitted: int64(101 + retries),
			Retries: int64(retries), Refused: int64(100 - retries)}, budget.Stats())
	})
}

// Each retry of a failing handler runs it again, so the budget counts these, too.
func TestFailingHandlerIsNotRunByEveryRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{RetryBudget: newBudget(t, small)}, status(503))
		for range 100 {
			s.post("k", "")
		}
		s.wantRuns(t, 1+3)
	})
}

// A refused request has claimed nothing, so its key is new when the request is accepted later. A
// request that says it is a retry is refused even if its key is new here.
func TestRequestsThatCallThemselvesRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{RetryBudget: newBudget(t, small),
			IsRetry: func(r *http.Request) bool {
				return r.Header.Get("X-Envoy-Attempt-Count") > "1"
			}}, created())
		first, second := header("X-Envoy-Attempt-Count", "1"), header("X-Envoy-Attempt-Count", "2")
		for i := range 3 {
			wantAnswer(t, s.post(fmt.Sprint("lost-", i), "", second), 201, "paid", firstTime)
		}
		wantProblem(t, s.post("k", "", second, unread), 429, "too-many-retries", retryInOne)
		wantAnswer(t, s.post("k", "", first), 201, "paid", firstTime)
	})
}

// Each process has a budget of its own. If only the Runner finds that a request is a retry, it is
// answered and counted, and the next one is refused.
func TestRetriesThatTheRunnerFinds(t *testing.T) {
	for _, row := range []struct {
		name   string
		handle http.HandlerFunc
		body   string
		want   int
	}{
		{"done", created(), "", 201},
		{"another request", created(), "other", 422},
		{"failed before", status(503), "", 503},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeduper(t, nil)
				elsewhere := newServiceOver(t, d, httpadapter.Config{}, row.handle)
				budget := newBudget(t, httpadapter.RetryBudgetConfig{Most: 1})
				s := newServiceOver(t, d, httpadapter.Config{RetryBudget: budget}, row.handle)
				elsewhere.post("k", "")
				assert.Equal(t, row.want, s.post("k", row.body).Code)
				wantProblem(t, s.post("k", row.body), 429, "too-many-retries", retryInOne)
				assert.Equal(t, httpadapter.RetryStats{Admitted: 1, Retries: 1, Refused: 1},
					budget.Stats())
			})
		})
	}
}

// One budget for two middlewares counts an account in both together.
func TestSharedRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(t, small)
		a := newService(t, httpadapter.Config{RetryBudget: budget}, created())
		b := newService(t, httpadapter.Config{RetryBudget: budget, Name: "b"}, created())
		for range 4 {
			wantAnswer(t, a.post("k", ""), 201, "paid", nil)
		}
		wantAnswer(t, b.post("k", ""), 201, "paid", firstTime) // the key is new for another route
		wantProblem(t, b.post("k", ""), 429, "too-many-retries", retryInOne)
	})
}

// Requests at the same time never get more retries than there are tokens.
func TestRetriesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(t, small)
		s := newService(t, httpadapter.Config{RetryBudget: budget}, created())
		s.post("k", "")
		var all sync.WaitGroup
		var answered atomic.Int64
		for range 50 {
			all.Go(func() {
				if s.post("k", "").Code == http.StatusCreated {
					answered.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 3, answered.Load())
		assert.EqualValues(t, 47, budget.Stats().Refused)
	})
}

// A client that waits for Retry-After is accepted, however slowly tokens come back.
func TestRetryAfterIsWhenATokenIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := newBudget(t, httpadapter.RetryBudgetConfig{Most: 1, PerSecond: 1.0 / 30})
		s := newService(t, httpadapter.Config{RetryBudget: budget}, created())
		s.post("k", "")
		s.post("k", "")
		for range 3 {
			wantProblem(t, s.post("k", ""), 429, "too-many-retries",
				map[string]string{"Retry-After": "30"})
			time.Sleep(30*time.Second - time.Millisecond)
			wantProblem(t, s.post("k", ""), 429, "too-many-retries",
				map[string]string{"Retry-After": "1"})
			time.Sleep(time.Millisecond)
			wantAnswer(t, s.post("k", ""), 201, "paid", replayed)
		}
	})
}

func TestNewRetryBudgetRefuses(t *testing.T) {
	for field, cfg := range map[string]httpadapter.RetryBudgetConfig{
		"Ratio":      {Ratio: -0.1},
		"PerSecond":  {PerSecond: math.NaN()},
		"Most":       {Most: math.Inf(1)},
		"Principals": {Principals: 1},
		"Keys":       {Keys: -1},
	} {
		_, err := httpadapter.NewRetryBudget(cfg)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "httpadapter.RetryBudgetConfig."+field, input.Field)
	}
	_, err := httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Most: 0.5})
	assert.ErrorContains(t, err, "no retry would ever be accepted")
}

func TestIsRetryNeedsABudget(t *testing.T) {
	_, err := httpadapter.New(newClaimed(t, newDeduper(t, nil)), byHeader,
		httpadapter.Config{IsRetry: func(*http.Request) bool { return true }})
	assert.ErrorContains(t, err, "IsRetry")
}

func TestNoRetryBudget(t *testing.T) {
	var budget *httpadapter.RetryBudget
	for range 100 {
		a, wait := budget.Admit("acme", "", "k", true)
		assert.Zero(t, wait)
		a.Found(&dedup.Result[[]byte]{Outcome: dedup.Duplicate})
	}
	assert.Zero(t, budget.Stats())
}
