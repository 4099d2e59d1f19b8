package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/retry"
)

// wire carries requests to a handler. It loses some of them, and some of the answers.
type wire struct {
	to          http.Handler
	there, back float64       // the share that is lost, from 0 to 1
	delay       time.Duration // at most, each way

	sent, lost atomic.Int64
}

var errLostOnTheWay = errors.New("connection reset by peer")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	answer := make(chan *http.Response, 1)
	go func() {
		defer close(answer)
		if time.Sleep(rand.N(w.delay)); rand.Float64() < w.there {
			return
		}
		r := req.Clone(req.Context())
		r.Body, r.RequestURI = io.NopCloser(bytes.NewReader(body)), req.URL.RequestURI()
		rec := httptest.NewRecorder()
		w.to.ServeHTTP(rec, r) // continues even if its client has gone
		if time.Sleep(rand.N(w.delay)); rand.Float64() >= w.back {
			answer <- rec.Result()
		}
	}()
	select {
	case resp := <-answer:
		if resp == nil {
			w.lost.Add(1)
			return nil, errLostOnTheWay
		}
		resp.Request = req
		return resp, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

// The transport and the handler work together. The wire loses a third of all messages, the handler
// is sometimes slower than an attempt, and there are hedges. Each of 500 payments is made once, and
// each client gets the answer to its own.
func TestEachPaymentOnceOverABadWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := dedup.New(dedup.Memory(10_000),
			dedup.Config{Namespace: "payments", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second})
		require.NoError(t, err)
		defer func() { _ = d.Close(context.Background()) }()
		run, err := httpadapter.Claimed(d)
		require.NoError(t, err)
		m, err := httpadapter.New(run, httpadapter.Unscoped, httpadapter.Config{})
		require.NoError(t, err)
		var mu sync.Mutex
		payments := make(map[string]int)
		bad := &wire{there: 0.15, back: 0.15, delay: 200 * time.Millisecond,
			to: m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				time.Sleep(rand.N(3 * time.Second))
				mu.Lock()
				defer mu.Unlock()
				payments[string(body)]++
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprintf(w, "paid %s", body)
			}))}
		var waits, hedges atomic.Int64
		tr := transport(t, bad, retry.TransportConfig{
			GenerateKeys: everybody, HedgeAfter: 500 * time.Millisecond,
			Policy: retry.Policy{Attempts: 20, AttemptTimeout: 2 * time.Second,
				OnRetry: func(e retry.Event) {
					if e.Wait {
						waits.Add(1)
					}
					if e.Hedge {
						hedges.Add(1)
					}
				}},
		})
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				id := fmt.Sprint("order-", i)
				resp, err := (&http.Client{Transport: tr}).Do(request(t, "POST", id))
				if !assert.NoError(t, err, id) {
					return
				}
				got := text(t, resp, nil)
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				assert.Equal(t, "paid "+id, got)
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // what is left behind ends
		t.Logf("%d requests for 500 payments, %d lost, %d waits, %d hedges", bad.sent.Load(),
			bad.lost.Load(), waits.Load(), hedges.Load())
		for id, n := range payments {
			assert.Equal(t, 1, n, "%s was paid", id)
		}
		assert.Len(t, payments, 500)
		assert.NotZero(t, waits.Load())
		assert.NotZero(t, hedges.Load())
		assert.NotZero(t, bad.lost.Load())
	})
}
