package httpadapter_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

var (
	doubt       = map[string]string{"Retry-After": "30", "Idempotency-Window": "86400"}
	waitInDoubt = map[string]string{"Retry-After": "30"}
)

// An adapter may write a failed handler's error only after the handler has returned without an
// answer. This was recorded as an empty 200 and replayed, and the effect was lost. The key is not
// released either, because the effect may have happened.
func TestSilenceIsNoSuccess(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"a header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/1")
		},
		"after MarkIrreversible": func(_ http.ResponseWriter, r *http.Request) {
			assert.NoError(t, dedup.MarkIrreversible(r.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, handle)
			silent := s.post("k", "")
			wantProblem(t, silent, 500, "no-answer", doubt)
			assert.Contains(t, silent.Body.String(), `"instance":"urn:onceward:`,
				"the record cannot be found")
			wantProblem(t, s.post("k", ""), 409, "uncertain", waitInDoubt)
			s.wantRuns(t, 1)
		})
	}
}

// An early hint is not an answer.
func TestSilenceAfterAHint(t *testing.T) {
	s := newService(t, httpadapter.Config{}, status(http.StatusEarlyHints))
	w := &plain{header: http.Header{}}
	s.h.ServeHTTP(w, post("k", ""))
	assert.Equal(t, []int{http.StatusEarlyHints, http.StatusInternalServerError}, w.statuses)
}

// An empty answer counts if the handler gives it explicitly.
func TestEmptyAnswersThatAreGiven(t *testing.T) {
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		status int
	}{
		"204": {status(http.StatusNoContent), 204},
		"200": {status(http.StatusOK), 200},
		"empty write": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(nil)
		}, 200},
		"flush": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
		}, 200},
		"flush by controller": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, row.handle)
			wantAnswer(t, s.post("k", ""), row.status, "", firstTime)
			wantAnswer(t, s.post("k", ""), row.status, "", replayed)
			s.wantRuns(t, 1)
		})
	}
}

// EmptyAnswer says for which requests a handler's silence means net/http's 200.
func TestEmptyAnswer(t *testing.T) {
	silent := func(http.ResponseWriter, *http.Request) {}
	t.Run("for all", func(t *testing.T) {
		s := newService(t, httpadapter.Config{EmptyAnswer: func(*http.Request) bool {
			return true
		}}, silent)
		wantAnswer(t, s.post("k", ""), 200, "", firstTime)
		wantAnswer(t, s.post("k", ""), 200, "", replayed)
		s.wantRuns(t, 1)
	})
	t.Run("for one route of a router inside", func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /ack/{id}", silent)
		mux.HandleFunc("POST /payments", silent)
		s := newService(t, httpadapter.Config{EmptyAnswer: func(r *http.Request) bool {
			return r.Pattern == "POST /ack/{id}"
		}}, mux.ServeHTTP)
		wantAnswer(t, s.post("k", "", target("/ack/7")), 200, "", firstTime)
		wantAnswer(t, s.post("k", "", target("/ack/7")), 200, "", replayed)
		wantProblem(t, s.post("k", ""), 500, "no-answer", doubt)
	})
}

// An atomic Runner gets an error, and rolls the handler's transaction back.
func TestSilenceInATransaction(t *testing.T) {
	run := &fake{atomic: true, do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		value, _, err := effect(ctx)
		assert.Error(t, err, "it would be committed: %q", value)
		return dedup.Result[[]byte]{}, err
	}}
	h := newMiddleware(t, run, byHeader,
		httpadapter.Config{}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	// no Retry-After, and no Do-Not-Retry
	wantProblem(t, send(h, post("k", "")), 500, "no-answer", nil)
}

// A handler that called Forgo says that nothing has begun, so its key is free.
func TestSilenceAfterForgo(t *testing.T) {
	forgo := true
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if forgo {
			assert.NoError(t, dedup.MarkIrreversible(r.Context()))
			httpadapter.Forgo(r.Context())
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	wantProblem(t, s.post("k", ""), 500, "no-answer", nil)
	forgo = false
	wantAnswer(t, s.post("k", ""), 201, "", firstTime)
}

// While the store is away, the unknown outcome cannot be recorded. The claim must not be released
// when the store is back.
func TestSilenceWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Store: dedup.Memory(10)}
		d := newDeduperOver(t, store, func(c *dedup.Config) {
			c.StoreTimeout = 100 * time.Millisecond
		})
		s := newServiceOver(t, d, httpadapter.Config{}, func(http.ResponseWriter, *http.Request) {
			store.silent.Store(true)
			time.AfterFunc(5*time.Second, func() { store.silent.Store(false) }) // half a lease
		})
		wantProblem(t, s.post("k", ""), 500, "no-answer", doubt)
		wantProblem(t, s.post("k", ""), 409, "uncertain", waitInDoubt)
		s.wantRuns(t, 1)
	})
}

// The retry of a request without an answer gets the result of Config.Resolve.
func TestSilenceIsResolved(t *testing.T) {
	d := newDeduper(t, func(c *dedup.Config) {
		c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.DidNotHappen(), nil
		}
	})
	silent := true
	s := newServiceOver(t, d, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		if !silent {
			w.WriteHeader(http.StatusCreated)
		}
	})
	wantProblem(t, s.post("k", ""), 500, "no-answer", doubt)
	silent = false
	wantAnswer(t, s.post("k", ""), 201, "", firstTime)
}

// The first missing answer of a route is logged as an error with the route. Later ones are not.
func TestFirstSilenceOfARouteIsLogged(t *testing.T) {
	var log bytes.Buffer
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /refund", func(http.ResponseWriter, *http.Request) {})
	s := newService(t, httpadapter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		mux.ServeHTTP)
	for _, path := range []string{"/pay/1", "/pay/2", "/refund", "/refund?again"} {
		s.post("k"+path[len(path)-1:], "", target(path))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	var silences []string
	for _, line := range lines {
		if strings.Contains(line, "without an answer") {
			silences = append(silences, line)
		}
	}
	require.Len(t, silences, 2, "logged:\n%s", &log)
	for i, route := range []string{`route="POST /pay/{id}"`, `route="POST /refund"`} {
		assert.Contains(t, silences[i], "level=ERROR")
		assert.Contains(t, silences[i], route)
	}

	log.Reset() // a handler without a router has no pattern
	newService(t, httpadapter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(http.ResponseWriter, *http.Request) {}).post("k", "")
	assert.Contains(t, log.String(), `route="POST /payments"`)
}
