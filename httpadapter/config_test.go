package httpadapter_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func TestNewRefuses(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	seenOnly := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.SeenOnly = true }))
	small := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.ResultLimit = 255 }))
	for _, row := range []struct {
		name  string
		run   httpadapter.Runner
		scope httpadapter.Scope
		cfg   httpadapter.Config
		field string
	}{
		{"no runner", nil, byHeader, httpadapter.Config{}, "Runner"},
		{"no scope", run, nil, httpadapter.Config{}, "Scope"},
		{"no results", seenOnly, byHeader, httpadapter.Config{}, "Runner"},
		{"small results", small, byHeader, httpadapter.Config{},
			"httpadapter.Config.ResponseLimit"},
		{"method", run, byHeader, httpadapter.Config{Methods: []string{"POST", "A B"}},
			"httpadapter.Config.Methods"},
		{"method in lower case", run, byHeader, httpadapter.Config{Methods: []string{"post"}},
			"httpadapter.Config.Methods"},
		{"empty method", run, byHeader, httpadapter.Config{Methods: []string{""}},
			"httpadapter.Config.Methods"},
		{"same host beside a route", run, byHeader,
			httpadapter.Config{Route: func(*http.Request) string {
				return ""
			}, SameHost: func(h string) string { return h }}, "httpadapter.Config.SameHost"},
		{"in flight", run, byHeader, httpadapter.Config{MaxInFlight: -1},
			"httpadapter.Config.MaxInFlight"},
		{"request limit", run, byHeader, httpadapter.Config{RequestLimit: -1},
			"httpadapter.Config.RequestLimit"},
		{"response limit", run, byHeader, httpadapter.Config{ResponseLimit: 255},
			"httpadapter.Config.ResponseLimit"},
		{"response limit of the runner", run, byHeader,
			httpadapter.Config{ResponseLimit: 256<<10 + 1}, "httpadapter.Config.ResponseLimit"},
		{"timeout", run, byHeader, httpadapter.Config{Timeout: -1}, "httpadapter.Config.Timeout"},
		{"retry after", run, byHeader, httpadapter.Config{RetryAfter: -1},
			"httpadapter.Config.RetryAfter"},
		{"fingerprint header", run, byHeader,
			httpadapter.Config{FingerprintHeaders: []string{"a b"}},
			"httpadapter.Config.FingerprintHeaders"},
		{"fingerprint key without version", run, byHeader,
			httpadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{}},
			"httpadapter.Config.FingerprintKey"},
		{"short fingerprint key", run, byHeader,
			httpadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{Version: 1,
				Key: make([]byte, 31)}}, "httpadapter.Config.FingerprintKey"},
		{"late version", run, byHeader,
			httpadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{Version: 128,
				Key: make([]byte, 32)}}, "httpadapter.Config.FingerprintKey"},
		{"short seal", run, byHeader, httpadapter.Config{Seal: [][]byte{make([]byte, 16)}},
			"httpadapter.Config.Seal"},
		{"plain of nothing", run, byHeader, httpadapter.Config{AcceptPlain: true},
			"httpadapter.Config.AcceptPlain"},
		{"keep", run, byHeader, httpadapter.Config{Keep: func(s int) bool {
			return s != 207
		}}, "httpadapter.Config.Keep"},
		{"keep of steps that are undone", &fake{atomic: true}, byHeader,
			httpadapter.Config{Keep: httpadapter.KeepStripeV2}, "httpadapter.Config.Keep"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, err := httpadapter.New(row.run, row.scope, row.cfg)
			wantInputError(t, err, row.field)
			assert.Nil(t, m, "a Middleware beside the error")
		})
	}
}

func TestNewTakes(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	newMiddleware(t, run, byHeader, httpadapter.Config{ResponseLimit: 256 << 10})
	newMiddleware(t, &fake{}, byHeader, httpadapter.Config{Keep: httpadapter.KeepStripeV2})
	newMiddleware(t, &fake{atomic: true}, byHeader, httpadapter.Config{Keep: func(s int) bool {
		return s < 300
	}})
	small := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.ResultLimit = 1000 }))
	m := newMiddleware(t, small, byHeader, httpadapter.Config{})
	wantProblem(t, send(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 1001))
		assert.ErrorIs(t, err, httpadapter.ErrResponseTooLarge,
			"the default is more than what is kept")
	})), post("k", "")), 500, "response-too-large", final)
}

// A replay reports the rest of its record's window. If the Runner does not know it, the replay
// reports none.
func TestWhatRemainsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotency-Window", "7")
			if r.URL.Path != "/payments" {
				w.WriteHeader(http.StatusCreated)
				panic("boom")
			}
			w.WriteHeader(http.StatusOK)
		})
		left := map[string]string{"Idempotency-Window": "82799"}
		s.post("k", "{}")
		panics(t, s.h, post("gone", "", target("/gone")))
		time.Sleep(time.Hour + time.Millisecond)
		wantAnswer(t, s.post("k", "{}"), 200, "", left)
		wantProblem(t, s.post("k", "{ }"), 422, "key-reused", left)
		wantProblem(t, s.post("gone", "", target("/gone")), 410, "response-not-kept",
			map[string]string{"Idempotency-Window": "82799", "Do-Not-Retry": "1"})
	})
	unknown := map[string]string{"Idempotency-Window": "", "Do-Not-Retry": "1"}
	for _, err := range []error{nil, dedup.ErrNoResult} {
		run := answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate}, err)
		run.window = time.Hour
		wantProblem(t, send(newMiddleware(t, run, byHeader,
			httpadapter.Config{}).Handler(status(200)), post("k", "")),
			410, "response-not-kept", unknown)
	}
}

func TestWindowIsTold(t *testing.T) {
	for window, want := range map[time.Duration]string{0: "", 900 * time.Millisecond: "",
		time.Hour: "3600", 90500 * time.Millisecond: "90"} {
		m := newMiddleware(t, &fake{window: window,
			do: answering(dedup.Result[[]byte]{}, dedup.ErrInFlight).do}, byHeader,
			httpadapter.Config{})
		wantHeaders(t, send(m.Handler(status(200)), post("k", "")),
			map[string]string{"Idempotency-Window": want})
	}
}
