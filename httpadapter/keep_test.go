package httpadapter_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func TestWhatIsKept(t *testing.T) {
	for _, row := range []struct {
		name string
		keep func(int) bool
		kept []int
		not  []int
	}{
		{"default", nil, []int{200, 201, 204, 301, 303, 400, 402, 410, 422},
			[]int{401, 403, 404, 405, 408, 409, 413, 415, 421, 423, 425, 428, 429, 500, 501,
				502, 503, 504}},
		{"IETF", httpadapter.KeepIETF, []int{200, 299, 304, 400, 402, 406, 410, 411, 412, 414, 416,
			417, 418, 422, 424, 426, 431, 451},
			[]int{401, 403, 404, 405, 408, 409, 413, 415, 421, 423, 425, 428, 429, 500, 599}},
		{"Stripe v1", httpadapter.KeepStripeV1, []int{200, 302, 402, 422, 424, 500, 502, 503},
			[]int{400, 401, 403, 404, 405, 409, 429}},
		{"Stripe v2", httpadapter.KeepStripeV2, []int{200, 202, 302},
			[]int{400, 402, 409, 422, 429, 500, 503}},
		{"one's own", func(s int) bool {
			return s < 300
		}, []int{200, 299}, []int{300, 302, 400, 500}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for want, codes := range map[bool][]int{true: row.kept, false: row.not} {
				for _, code := range codes {
					s := newService(t, httpadapter.Config{Keep: row.keep}, status(code))
					wantAnswer(t, s.post("k", ""), code, "", firstTime)
					if want {
						wantAnswer(t, s.post("k", ""), code, "", replayed)
						s.wantRuns(t, 1)
					} else {
						wantAnswer(t, s.post("k", ""), code, "", firstTime)
						s.wantRuns(t, 2)
					}
				}
			}
		})
	}
}

// A 101 needs the connection, so it cannot be kept or sent.
func TestSwitchingProtocols(t *testing.T) {
	s := newService(t, httpadapter.Config{}, status(101))
	wantProblem(t, s.post("k", ""), 501, "not-supported", nil)
	s.post("k", "")
	s.wantRuns(t, 2)
}

func TestForgo(t *testing.T) {
	assert.False(t, httpadapter.Forgo(t.Context()), "outside a handler")
	forgo := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, dedup.MarkIrreversible(r.Context()))
			assert.True(t, httpadapter.Forgo(r.Context()), "not heard")
			w.WriteHeader(code)
		}
	}
	for _, code := range []int{302, 400, 422, 500} {
		s := newService(t, httpadapter.Config{Keep: httpadapter.KeepStripeV1}, forgo(code))
		for range 2 {
			wantAnswer(t, s.post("k", ""), code, "", firstTime)
		}
		s.wantRuns(t, 2)
	}
	s := newService(t, httpadapter.Config{}, forgo(200))
	wantAnswer(t, s.post("k", ""), 200, "", firstTime)
	wantAnswer(t, s.post("k", ""), 200, "", replayed)
	s.wantRuns(t, 1)
}

// If the outcome is not known after MarkIrreversible, the key is uncertain and does not run again.
func TestMarkIrreversible(t *testing.T) {
	dangerous := func(end http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, dedup.MarkIrreversible(r.Context()))
			end(w, r)
		}
	}
	waits := map[string]string{"Retry-After": "30", "Idempotency-Window": "86400"}
	t.Run("not kept", func(t *testing.T) {
		s := newService(t, httpadapter.Config{}, dangerous(status(502)))
		wantAnswer(t, s.post("k", ""), 502, "", firstTime)
		wantProblem(t, s.post("k", ""), 409, "uncertain", waits)
		s.wantRuns(t, 1)
	})
	t.Run("panic", func(t *testing.T) {
		s := newService(t, httpadapter.Config{},
			dangerous(func(http.ResponseWriter, *http.Request) { panic("boom") }))
		func() {
			defer func() { _ = recover() }()
			s.post("k", "")
		}()
		wantProblem(t, s.post("k", ""), 409, "uncertain", waits)
		s.wantRuns(t, 1)
	})
	t.Run("kept", func(t *testing.T) {
		s := newService(t, httpadapter.Config{}, dangerous(status(402)))
		wantAnswer(t, s.post("k", ""), 402, "", firstTime)
		wantAnswer(t, s.post("k", ""), 402, "", replayed)
	})
}

// As in Stripe's version 2, a failure releases the key, and its retry skips the steps that are
// finished.
func TestRetryGoesOnFromItsSteps(t *testing.T) {
	charges, down := 0, true
	s := newService(t, httpadapter.Config{Keep: httpadapter.KeepStripeV2},
		func(w http.ResponseWriter, r *http.Request) {
			id, err := dedup.Step(r.Context(), "charge", func(context.Context) (string, error) {
				charges++
				return "ch_1", nil
			})
			if err == nil && down {
				err = errors.New("mail is down")
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte(id))
		})
	wantAnswer(t, s.post("k", ""), 500, "mail is down\n", firstTime)
	down = false
	wantAnswer(t, s.post("k", ""), 200, "ch_1", firstTime)
	wantAnswer(t, s.post("k", ""), 200, "ch_1", replayed)
	assert.Equal(t, 1, charges)
}
