package httpadapter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

func TestFirstAnswerAndReplay(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	location := map[string]string{"Location": "/payments/1"}
	first := s.post(`"k"`, `{"amount":1}`)
	wantAnswer(t, first, 201, "paid", firstTime)
	wantHeaders(t, first, location)
	again := s.post(`k`, `{"amount":1}`)
	wantAnswer(t, again, 201, "paid", replayed)
	wantHeaders(t, again, location)
	s.wantRuns(t, 1)
}

// These requests are refused before anything is claimed. The handler does not run, and a
// well-formed request can use the same key.
func TestRefusedBeforeTheClaim(t *testing.T) {
	cfg := httpadapter.Config{
		RequestLimit: 10,
		CheckKey: func(key string) error {
			if key == "weak" {
				return errors.New("the key must be a UUID")
			}
			return nil
		},
	}
	window := map[string]string{"Idempotency-Window": "86400"}
	for _, row := range []struct {
		name    string
		r       *http.Request
		status  int
		problem string
		headers map[string]string
	}{
		{"no key", post("", "{}"), 400, "key-missing", nil},
		{"malformed", post(`"k`, "{}"), 400, "key-malformed", nil},
		{"empty", post("", "{}", func(r *http.Request) {
			r.Header["Idempotency-Key"] = []string{""}
		}), 400, "key-malformed", nil},
		{"two lines", post("k", "{}", func(r *http.Request) {
			r.Header.Add("Idempotency-Key", "k")
		}), 400, "key-malformed", nil},
		{"256 bytes", post(strings.Repeat("k", 256), "{}"), 400, "key-malformed", nil},
		{"refused by CheckKey", post("weak", "{}"), 400, "key-malformed", nil},
		{"body that breaks off", post("k", "{}", func(r *http.Request) {
			r.Body = http.NoBody
			r.Body = readCloser{iotest.TimeoutReader(strings.NewReader("{}"))}
		}), 400, "body-incomplete", window},
		{"no principal", post("k", "{}", header("X-Account", "")), 401, "no-principal", window},
		{"body too large", post("k", strings.Repeat("x", 11)), 413, "request-too-large", window},
		{"body too large, of unknown length",
			post("k", strings.Repeat("x", 11), func(r *http.Request) {
				r.ContentLength = -1
			}), 413, "request-too-large", window},
		{"body said to be too large", post("k", "", func(r *http.Request) {
			r.ContentLength, r.Body = 11, readCloser{iotest.ErrReader(errors.New("was read"))}
		}), 413, "request-too-large", window},
		{"body read outside", post("k", "{}", func(r *http.Request) {
			_, _ = r.Body.Read(make([]byte, 10))
		}), 500, "body-taken", map[string]string{"Do-Not-Retry": "1"}},
		{"body read outside in part", post("k", "{}", func(r *http.Request) {
			_, _ = r.Body.Read(make([]byte, 1))
		}), 500, "body-taken", map[string]string{"Do-Not-Retry": "1"}},
		{"body replaced outside by a shorter one", post("k", "{}", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader("x"))
		}), 500, "body-taken", map[string]string{"Do-Not-Retry": "1"}},
		{"form read outside", post("k", "a=1",
			header("Content-Type", "application/x-www-form-urlencoded"), func(r *http.Request) {
				r.ContentLength = -1
				_ = r.FormValue("a")
			}), 500, "body-taken", map[string]string{"Do-Not-Retry": "1"}},
		{"parts read outside",
			post("k", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n",
				header("Content-Type", "multipart/form-data; boundary=x"), func(r *http.Request) {
					r.ContentLength = -1
					_ = r.FormValue("b")
					r.PostForm = nil
				}), 500, "body-taken", map[string]string{"Do-Not-Retry": "1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newService(t, cfg, created())
			wantProblem(t, send(s.h, row.r), row.status, row.problem, row.headers)
			s.wantRuns(t, 0)
			wantAnswer(t, s.post("k", "0123456789"), 201, "paid", firstTime)
		})
	}
	t.Run("CheckKey tells why", func(t *testing.T) {
		w := newService(t, cfg, created()).post("weak", "{}")
		assert.Contains(t, w.Body.String(), "the key must be a UUID")
	})
}

// readCloser is a body that reads from r.
type readCloser struct {
	r interface{ Read([]byte) (int, error) }
}

func (r readCloser) Read(p []byte) (int, error) { return r.r.Read(p) }
func (r readCloser) Close() error               { return nil }

func TestScopeThatFails(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	m := newMiddleware(t, run, func(*http.Request) (string, error) {
		return "acme", errors.New("directory is down")
	}, httpadapter.Config{})
	r := post("k", "", func(r *http.Request) {
		r.Body = readCloser{iotest.ErrReader(errors.New("was read"))}
	})
	w := send(m.Handler(status(200)), r)
	wantProblem(t, w, 503, "scope-unavailable", retryInOne)
	assert.NotContains(t, w.Body.String(), "directory", "the client is told of the directory")
}

func TestOthersPassUntouched(t *testing.T) {
	for name, row := range map[string]struct {
		cfg httpadapter.Config
		r   *http.Request
	}{
		"another method": {httpadapter.Config{}, post("k", "{}", func(r *http.Request) {
			r.Method = "PUT"
		})},
		"optional without key": {httpadapter.Config{Optional: true}, post("", "{}")},
		"POST is not in it":    {httpadapter.Config{Methods: []string{"DELETE"}}, post("k", "{}")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, row.cfg, created())
			var got *http.Request
			s.h = s.m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
			}))
			w := send(s.h, row.r)
			assert.Same(t, row.r, got, "another request arrived")
			wantHeaders(t, w, map[string]string{"Idempotency-Window": ""})
		})
	}
	t.Run("optional with key", func(t *testing.T) {
		s := newService(t, httpadapter.Config{Optional: true}, created())
		s.post("k", "{}")
		wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
		wantProblem(t, s.post(`"`, "{}"), 400, "key-malformed", nil)
	})
}

// A Runner gives these answers without running the handler.
func TestAnswersOfTheRunner(t *testing.T) {
	left := func(d time.Duration) dedup.Result[[]byte] {
		return dedup.Result[[]byte]{Outcome: dedup.InFlight, Record: dedup.Record{Remaining: d}}
	}
	none := dedup.Result[[]byte]{}
	in := func(seconds string) map[string]string {
		return map[string]string{"Retry-After": seconds}
	}
	gone := map[string]string{"Do-Not-Retry": "1"}
	for _, row := range []struct {
		name    string
		res     dedup.Result[[]byte]
		err     error
		status  int
		problem string
		headers map[string]string
	}{
		{"another fingerprint", none, dedup.ErrMismatch, 422, "key-reused", nil},
		{"in flight", left(0), dedup.ErrInFlight, 409, "in-flight", in("5")},
		{"in flight, long lease", left(time.Minute), dedup.ErrInFlight, 409, "in-flight", in("5")},
		{"in flight, short lease", left(1500 * time.Millisecond), dedup.ErrInFlight, 409,
			"in-flight", in("2")},
		{"in flight, lapsing lease", left(time.Millisecond), dedup.ErrInFlight,
			409, "in-flight", in("1")},
		{"uncertain", none, fmt.Errorf("asked: %w", dedup.ErrUncertain), 409,
			"uncertain", in("30")},
		{"unknown", none, fmt.Errorf("down: %w", dedup.ErrUnknown),
			503, "store-unavailable", in("5")},
		{"unknown, the lease lapsed before", none,
			errors.Join(dedup.ErrUnknown, dedup.ErrLeaseLost), 503, "store-unavailable", in("5")},
		{"store full", none, driver.ErrStoreFull, 503, "store-unavailable", in("5")},
		{"closed", none, dedup.ErrClosed, 503, "store-unavailable", in("5")},
		{"unreadable", none, driver.ErrUnreadable, 503, "store-unavailable", in("5")},
		{"another error", none, errors.New("driver: bad connection"),
			503, "store-unavailable", in("5")},
		{"an input error", none, &dedup.InputError{Field: "Key", Reason: "is bad"},
			503, "store-unavailable", in("5")},
		{"nothing at all", none, nil, 503, "store-unavailable", in("5")},
		{"acquired without a run", dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: []byte{1}},
			nil, 503, "store-unavailable", in("5")},
		{"no result", dedup.Result[[]byte]{Outcome: dedup.Duplicate}, dedup.ErrNoResult, 410,
			"response-not-kept", gone},
		{"marked by an operator", dedup.Result[[]byte]{Outcome: dedup.Duplicate}, nil, 410,
			"response-not-kept", gone},
		{"an empty result", dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: []byte{}},
			nil, 410, "response-not-kept", gone},
		{"a tombstone", dedup.Result[[]byte]{Outcome: dedup.Duplicate,
			Value: []byte{1, 2, 200, 1, 0}}, nil, 410, "response-not-kept", gone},
		{"a foreign result", dedup.Result[[]byte]{Outcome: dedup.Duplicate,
			Value: []byte(`{"a":1}`)}, nil, 500, "response-unreadable", gone},
		{"half a result", dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: []byte{1, 1, 200}},
			nil, 500, "response-unreadable", gone},
		{"a result of status 0", dedup.Result[[]byte]{Outcome: dedup.Duplicate,
			Value: []byte{1, 1, 0, 0}}, nil, 500, "response-unreadable", gone},
		{"a result of status 101", dedup.Result[[]byte]{Outcome: dedup.Duplicate,
			Value: []byte{1, 1, 101, 0}}, nil, 500, "response-unreadable", gone},
		{"failed for good", none, &dedup.FailedError{Message: "card 4111", Attempt: 2}, 500,
			"failed", gone},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMiddleware(t, answering(row.res, row.err), byHeader,
				httpadapter.Config{RetryAfter: 4100 * time.Millisecond})
			w := send(m.Handler(status(200)), post("k", "{}"))
			wantProblem(t, w, row.status, row.problem, row.headers)
			// this Runner reports no window
			wantHeaders(t, w, map[string]string{"Idempotency-Window": ""})
			assert.NotContains(t, w.Body.String(), "4111", "the client is told")
			assert.NotContains(t, w.Body.String(), "driver")
		})
	}
}

// The handler has answered with 201, but the client gets that answer only if it is on record.
func TestNoSuccessWithoutItsRecord(t *testing.T) {
	unknown := fmt.Errorf("timed out: %w", dedup.ErrUnknown)
	for _, row := range []struct {
		name    string
		err     error
		problem string
	}{
		{"record unknown", unknown, "outcome-unknown"},
		{"lease lost", dedup.ErrLeaseLost, "outcome-unknown"},
		{"store down", errors.New("commit failed"), "store-unavailable"},
		{"closed", dedup.ErrClosed, "store-unavailable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
				_ dedup.Request) (dedup.Result[[]byte], error) {
				value, _, err := effect(ctx)
				assert.NotNil(t, value)
				assert.NoError(t, err)
				return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: value}, row.err
			}}
			m := newMiddleware(t, run, byHeader, httpadapter.Config{})
			w := send(m.Handler(created()), post("k", "{}"))
			wantProblem(t, w, 503, row.problem,
				map[string]string{"Retry-After": "1", "Location": ""})
			assert.NotContains(t, w.Body.String(), "paid", "the answer got out")
		})
	}
	t.Run("lease lost, failure not kept", func(t *testing.T) {
		run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
			_ dedup.Request) (dedup.Result[[]byte], error) {
			_, _, err := effect(ctx)
			return dedup.Result[[]byte]{}, errors.Join(err, dedup.ErrLeaseLost)
		}}
		m := newMiddleware(t, run, byHeader, httpadapter.Config{})
		wantProblem(t, send(m.Handler(status(404)), post("k", "{}")), 503, "outcome-unknown",
			map[string]string{"Retry-After": "1"})
	})
}

// The record is written, then the first byte goes out.
func TestRecordBeforeTheAnswer(t *testing.T) {
	var order []string
	run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		value, _, err := effect(ctx)
		order = append(order, "record")
		return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: value}, err
	}}
	h := newMiddleware(t, run, byHeader,
		httpadapter.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("paid"))
		_ = http.NewResponseController(w).Flush()
		order = append(order, "handler")
	}))
	h.ServeHTTP(noting{func(what string) { order = append(order, what) }}, post("k", "{}"))
	assert.Equal(t, "handler record status body", strings.Join(order, " "))
}

type noting struct{ note func(string) }

func (n noting) Header() http.Header         { return http.Header{} }
func (n noting) WriteHeader(int)             { n.note("status") }
func (n noting) Write(p []byte) (int, error) { n.note("body"); return len(p), nil }
func (n noting) Flush()                      { n.note("flush") }

func TestAnotherRequestUnderTheKey(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	s.post("k", `{"amount":1}`)
	wantProblem(t, s.post("k", `{"amount":2}`), 422, "key-reused", nil)
	s.wantRuns(t, 1)
}

func TestReplayRefused(t *testing.T) {
	allowed := true
	s := newService(t, httpadapter.Config{BeforeReplay: func(r *http.Request) error {
		assert.Equal(t, "1", r.FormValue("x"), "it may read the body: it has one of its own")
		if !allowed {
			return errors.New("left the company")
		}
		return nil
	}}, created())
	form := header("Content-Type", "application/x-www-form-urlencoded")
	s.post("k", "x=1", form)
	wantAnswer(t, s.post("k", "x=1", form), 201, "paid", replayed)
	allowed = false
	w := s.post("k", "x=1", form)
	wantProblem(t, w, 403, "replay-refused", map[string]string{"Location": ""})
	assert.NotContains(t, w.Body.String(), "company", "the client is told why")
	_, err := s.d.Mark(t.Context(), "k") // of no scope: another key
	require.NoError(t, err)
	s.wantRuns(t, 1)
}

// If BeforeReplay returns an ErrUnknown, the replay is unavailable and not refused.
func TestReplayThatCannotBeDecided(t *testing.T) {
	s := newService(t, httpadapter.Config{BeforeReplay: func(*http.Request) error {
		return fmt.Errorf("%w: directory is down", dedup.ErrUnknown)
	}}, created())
	s.post("k", "{}")
	wantProblem(t, s.post("k", "{}"), 503, "replay-unavailable",
		map[string]string{"Retry-After": "1", "Location": ""})
	s.wantRuns(t, 1)
}

func TestMarkedByAnOperator(t *testing.T) {
	asked := false
	run := answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate}, dedup.ErrNoResult)
	m := newMiddleware(t, run, byHeader,
		httpadapter.Config{BeforeReplay: func(*http.Request) error {
			asked = true
			return errors.New("no")
		}})
	wantProblem(t, send(m.Handler(status(200)), post("k", "")), 403, "replay-refused", nil)
	assert.True(t, asked, "what is done is told without asking")
}
