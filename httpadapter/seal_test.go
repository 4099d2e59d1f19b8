package httpadapter_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func sealing(keys ...byte) httpadapter.Config {
	var cfg httpadapter.Config
	for _, b := range keys {
		cfg.Seal = append(cfg.Seal, bytes.Repeat([]byte{b}, 32))
	}
	return cfg
}

func personal(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/people/ada")
	_, _ = w.Write([]byte("ada@example.org"))
}

func TestSealedAnswersAreReplayed(t *testing.T) {
	store := &noted{Store: dedup.Memory(10)}
	s := newServiceOver(t, newDeduperOver(t, store, nil), sealing(1), personal)
	wantAnswer(t, s.post("k", ""), 200, "ada@example.org", firstTime)
	w := s.post("k", "")
	wantAnswer(t, w, 200, "ada@example.org", replayed)
	wantHeaders(t, w, map[string]string{"Location": "/people/ada"})
	require.Len(t, store.results, 1)
	assert.False(t, bytes.Contains(store.results[0], []byte("ada")), "stored: %q", store.results)
	assert.EqualValues(t, 0x81, store.results[0][0])
}

// An attacker may write to the store, but has no key. A sealed answer that the
// attacker copies is not replayed to another client.
func TestSealedAnswerMovedElsewhere(t *testing.T) {
	var stored []byte
	run := &fake{do: func(ctx context.Context, key string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		if stored != nil {
			return dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: stored}, nil
		}
		var err error
		stored, _, err = effect(ctx)
		return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: stored}, err
	}}
	h := newMiddleware(t, run, byHeader, sealing(1)).Handler(http.HandlerFunc(personal))
	wantAnswer(t, send(h, post("k", "")), 200, "ada@example.org", nil)
	wantAnswer(t, send(h, post("k", "")), 200, "ada@example.org",
		map[string]string{"Idempotent-Replayed": "true"})
	for name, r := range map[string]*http.Request{
		"another key":    post("k2", ""),
		"another tenant": post("k", "", header("X-Account", "evil")),
		"another route":  post("k", "", target("/refunds")),
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, send(h, r), 500, "response-unreadable",
				map[string]string{"Do-Not-Retry": "1"})
		})
	}
	t.Run("another name", func(t *testing.T) {
		cfg := sealing(1)
		cfg.Name = "other"
		h := newMiddleware(t, run, byHeader, cfg).Handler(http.HandlerFunc(personal))
		wantProblem(t, send(h, post("k", "")), 500, "response-unreadable",
			map[string]string{"Do-Not-Retry": "1"})
	})
}

func TestSealKeysOverTime(t *testing.T) {
	unreadable := func(t *testing.T, s *service) {
		t.Helper()
		wantProblem(t, s.post("k", ""), 500, "response-unreadable", finalAgain)
		s.wantRuns(t, 0) // never again
	}
	for _, row := range []struct {
		name          string
		before, after httpadapter.Config
		read          bool
	}{
		{"rotated", sealing(1), sealing(2, 1), true},
		{"added for reading", sealing(1), sealing(1, 2), true},
		{"dropped too early", sealing(1), sealing(2), false},
		{"turned on", httpadapter.Config{}, sealing(1), false},
		{"turned on, plain accepted", httpadapter.Config{},
			httpadapter.Config{Seal: sealing(1).Seal, AcceptPlain: true}, true},
		{"turned off", sealing(1), httpadapter.Config{}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDeduper(t, nil)
			newServiceOver(t, d, row.before, personal).post("k", "")
			s := newServiceOver(t, d, row.after, personal)
			if row.read {
				wantAnswer(t, s.post("k", ""), 200, "ada@example.org", replayed)
			} else {
				unreadable(t, s)
			}
		})
	}
}

// Resolve finds out that the effect has happened, and returns the answer for its replays.
func TestResolveWithAnAnswer(t *testing.T) {
	for name, cfg := range map[string]httpadapter.Config{"plain": {}, "sealed": sealing(1)} {
		t.Run(name, func(t *testing.T) {
			var m *httpadapter.Middleware
			body := "found"
			d := newDeduper(t, func(c *dedup.Config) {
				c.Resolve = func(ctx context.Context, key string, rec dedup.Record) (
					dedup.Resolution, error) {
					h := http.Header{"Location": {"/payments/7"}, "Set-Cookie": {"secret"}}
					data, err := m.EncodeResponse(ctx, 201, h, []byte(body))
					return dedup.Happened(data), err
				}
			})
			s := newServiceOver(t, d, cfg, func(w http.ResponseWriter, r *http.Request) {
				assert.NoError(t, dedup.MarkIrreversible(r.Context()))
				w.WriteHeader(http.StatusBadGateway)
			})
			m = s.m
			wantAnswer(t, s.post("k", ""), 502, "", firstTime)
			for range 2 {
				w := s.post("k", "")
				wantAnswer(t, w, 201, "found", replayed)
				wantHeaders(t, w, map[string]string{"Location": "/payments/7", "Set-Cookie": ""})
			}
			body = string(make([]byte, 128<<10))
			s.post("large", "")
			wantProblem(t, s.post("large", ""), 410, "response-not-kept", finalAgain)
			s.wantRuns(t, 2)
		})
	}
}

func TestEncodeResponse(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	plain := newMiddleware(t, run, byHeader, httpadapter.Config{})
	for _, status := range []int{0, 101, 199, 1000} {
		_, err := plain.EncodeResponse(t.Context(), status, nil, nil)
		wantInputError(t, err, "Status")
	}
	data, err := plain.EncodeResponse(t.Context(), 200, nil, []byte("x"))
	assert.NoError(t, err)
	assert.NotZero(t, len(data))
	sealed := newMiddleware(t, run, byHeader, sealing(1))
	_, err = sealed.EncodeResponse(t.Context(), 200, nil, nil)
	wantInputError(t, err, "Context")
	send(plain.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := sealed.EncodeResponse(r.Context(), 200, nil, nil) // of another middleware
		wantInputError(t, err, "Context")
	})), post("k", ""))
}
