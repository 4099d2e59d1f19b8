package httpadapter_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

// A handler that returns because its context has ended has not answered. net/http would send an
// empty 200, which must be neither kept nor sent.
func TestAbortedHandlerIsNoEmptySuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := true
		s := newService(t, httpadapter.Config{Timeout: 3 * time.Second},
			func(w http.ResponseWriter, r *http.Request) {
				if hang {
					start := time.Now()
					<-r.Context().Done()
					assert.Equal(t, 3*time.Second, time.Since(start))
					assert.ErrorIs(t, r.Context().Err(), context.DeadlineExceeded)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
		wantProblem(t, s.post("k", ""), 503, "cancelled", retryInOne)
		hang = false
		wantAnswer(t, s.post("k", ""), 201, "", firstTime) // the key is free
		wantAnswer(t, s.post("k", ""), 201, "", replayed)
	})
}

// The timeout only cancels. If the handler ignores it and answers later, that answer is kept.
func TestHandlerThatAnswersAfterItsTimeoutIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{Timeout: time.Second},
			func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(time.Minute)
				w.WriteHeader(http.StatusCreated)
			})
		wantAnswer(t, s.post("k", ""), 201, "", firstTime)
		wantAnswer(t, s.post("k", ""), 201, "", replayed)
		s.wantRuns(t, 1)
	})
}

func TestClientThatHasGoneCancelsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
			hangUp()
			synctest.Wait()
			assert.NoError(t, r.Context().Err())
			created()(w, r)
		})
		s.post("k", "{}", with(ctx))
		wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
		s.wantRuns(t, 1)
	})
}

func TestCancelWithClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		s := newService(t, httpadapter.Config{CancelWithClient: true},
			func(w http.ResponseWriter, r *http.Request) {
				hangUp()
				_, ok := r.Context().Deadline()
				assert.True(t, ok, "no timeout")
				if r.Header.Get("X-Stay") == "" {
					<-r.Context().Done()
					return
				}
				created()(w, r)
			})
		start := time.Now()
		wantProblem(t, s.post("k", "{}", with(ctx)), 503, "cancelled", retryInOne)
		assert.Zero(t, time.Since(start))
		wantAnswer(t, s.post("k", "{}", header("X-Stay", "1")), 201, "paid", firstTime)
	})
}

// When a client hangs up while it waits for a key in flight, the wait ends. If it is gone before
// its handler starts, the handler does not start.
func TestWaitingGoesWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, func(c *dedup.Config) { c.Wait = time.Hour })
		free := make(chan struct{})
		s := newServiceOver(t, d, httpadapter.Config{Timeout: 2 * time.Hour},
			func(w http.ResponseWriter, r *http.Request) {
				<-free
				created()(w, r)
			})
		go s.post("k", "{}")
		synctest.Wait()
		ctx, hangUp := context.WithCancel(t.Context())
		start, gone := time.Now(), make(chan struct{})
		go func() {
			s.post("k", "{}", with(ctx))
			close(gone)
		}()
		time.Sleep(time.Minute)
		hangUp()
		<-gone
		assert.LessOrEqual(t, time.Since(start), time.Minute+time.Second)
		close(free)
		wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed) // waits, and gets it
		w := s.post("other", "{}", with(ctx))
		assert.Equal(t, 503, w.Code, "of a client that has gone")
		s.wantRuns(t, 1)
	})
}

// The client leaves between claim and handler, so the handler does not start.
func TestClientGoneBeforeTheHandlerBegins(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		hangUp()
		<-ctx.Done()
		_, _, err := effect(context.WithoutCancel(ctx))
		return dedup.Result[[]byte]{}, err
	}}
	m := newMiddleware(t, run, byHeader, httpadapter.Config{})
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("began") }))
	wantProblem(t, send(h, post("k", "{}", with(ctx))), 503, "cancelled",
		map[string]string{"Retry-After": "1"})
}

func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := newService(t, httpadapter.Config{RetryAfter: 7 * time.Second},
			func(w http.ResponseWriter, r *http.Request) {
				<-free
				created()(w, r)
			})
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- s.post("k", "{}") }()
		synctest.Wait()
		wantProblem(t, s.post("k", "{}"), 409, "in-flight",
			map[string]string{"Retry-After": "7", "Idempotency-Window": "86400"})
		time.Sleep(30 * time.Second) // three leases: it is renewed
		wantProblem(t, s.post("k", "{}"), 409, "in-flight", map[string]string{"Retry-After": "7"})
		close(free)
		wantAnswer(t, <-first, 201, "paid", firstTime)
		wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
		s.wantRuns(t, 1)
	})
}

// The lease is lost while the handler runs. Its context is canceled, whatever its client does, and
// no answer of it is sent as a success.
func TestLeaseLostUnderTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Store: dedup.Memory(10)}
		ctx, hangUp := context.WithCancel(t.Context())
		s := newServiceOver(t, newDeduperOver(t, store, nil), httpadapter.Config{},
			func(w http.ResponseWriter, r *http.Request) {
				hangUp()
				synctest.Wait()
				store.silent.Store(true)
				<-r.Context().Done()
				assert.ErrorIs(t, context.Cause(r.Context()), dedup.ErrLeaseLost)
				store.silent.Store(false)
				created()(w, r)
			})
		wantProblem(t, s.post("k", "{}", with(ctx)), 503, "outcome-unknown", retryInOne)
	})
}

// deaf does not renew while it is silent.
type deaf struct {
	dedup.Store
	silent atomic.Bool
}

func (s *deaf) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	if !s.silent.Load() {
		return s.Store.Renew(ctx, renewals)
	}
	answers := make([]driver.Answer, len(renewals))
	for i := range answers {
		answers[i].Err = errors.New("deaf")
	}
	return answers
}

// A handler's panic reaches the caller with its own value, and the key is released.
func TestPanicReleasesAndGoesOn(t *testing.T) {
	for name, value := range map[string]any{"a panic": "boom",
		"ErrAbortHandler": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			angry := true
			s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
				if angry {
					panic(value)
				}
				w.WriteHeader(http.StatusCreated)
			})
			assert.Equal(t, value, panics(t, s.h, post("k", "")))
			angry = false
			wantAnswer(t, s.post("k", ""), 201, "", firstTime)
			s.wantRuns(t, 2)
		})
	}
}

func TestGoexitReleases(t *testing.T) {
	exit := true
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if exit {
			runtime.Goexit()
		}
		w.WriteHeader(http.StatusOK)
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.post("k", "")
		t.Error("it has an answer")
	}()
	<-done
	exit = false
	wantAnswer(t, s.post("k", ""), 200, "", firstTime)
}

// A middleware around a router and again around its route works like one: the inner one does not
// find the key in flight. With another key, as of a request in a batch, it works on its own.
func TestMiddlewareInsideOfItself(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	h := s.m.Handler(s.h)
	wantAnswer(t, send(h, post("k", "{}")), 201, "paid", firstTime)
	wantAnswer(t, send(h, post("k", "{}")), 201, "paid", replayed)
	s.wantRuns(t, 1)

	batch := s.m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			inner := post("part", "{}", with(r.Context()))
			w.Header().Set("Vary", send(s.h, inner).Header().Get("Idempotent-Replayed"))
		}
		w.WriteHeader(http.StatusOK)
	}))
	wantAnswer(t, send(batch, post("batch", "{}")), 200, "", map[string]string{"Vary": "true"})
	s.wantRuns(t, 2)
}
