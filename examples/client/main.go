// Client pays through a server that loses answers, and every payment lands once:
//
//	go run ./examples/client
//	go run ./examples/client -n 100
//
// It starts that server itself. Start with newClient for your own client: its transport repeats a
// request with one Idempotency-Key, and knows which answers allow another attempt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/onceward/onceward/retry"
)

func main() {
	n := flag.Int("n", 12, "payments")
	flag.Parse()
	if err := run(context.Background(), *n, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n int, out io.Writer) error {
	server, err := startFlaky(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	client, err := newClient(server.url)
	if err != nil {
		return err
	}
	payments := payAll(ctx, client, server.url, n)
	return report(out, payments, server)
}

// newClient makes a client for one service, because a retry budget and a circuit breaker belong to
// one service.
func newClient(base string) (*http.Client, error) {
	transport, err := retry.NewTransport(nil, retry.TransportConfig{
		// A POST is retried only on a server that honors keys. This server does. Each request gets
		// a random key, which is the same for all its attempts.
		GenerateKeys: func(r *http.Request) bool { return strings.HasPrefix(r.URL.String(), base) },
		Policy: retry.Policy{
			Attempts: 20,
			Backoff:  retry.Backoff{Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond},
			// By default retries are at most a tenth of the requests, so that they do not make an
			// outage worse. This server fails more often than that, and this program is about its
			// retries.
			Budget:  retry.Unlimited(),
			OnRetry: note,
		},
	})
	if err != nil {
		return nil, err
	}
	// for all attempts together
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

// payment is one payment, with the attempts and failures that its client has seen.
type payment struct {
	id       string
	failures []string
	answer   string
}

type paymentKey struct{}

// note records each failure that allows another attempt.
func note(e retry.Event) {
	p, ok := e.Request.Context().Value(paymentKey{}).(*payment)
	switch {
	case !ok:
	case e.Wait: // the first attempt still runs: wait for its answer, do not pay again
		p.failures = append(p.failures, "409 in flight")
	case e.Status != 0:
		p.failures = append(p.failures, fmt.Sprint(e.Status))
	default: // nobody knows whether it was paid. The key makes it safe to retry
		p.failures = append(p.failures, "no answer")
	}
}

// payAll makes n payments, eight at a time.
func payAll(ctx context.Context, client *http.Client, base string, n int) []*payment {
	payments, next := make([]*payment, n), make(chan *payment)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for p := range next {
				p.answer = pay(context.WithValue(ctx, paymentKey{}, p), client, base, p.id)
			}
		})
	}
	for i := range payments {
		payments[i] = &payment{id: fmt.Sprintf("invoice-%03d", i+1)}
		next <- payments[i]
	}
	close(next)
	wg.Wait()
	return payments
}

// pay has no code for retries, because it gets only errors that no retry can fix.
func pay(ctx context.Context, client *http.Client, base, invoice string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/payments",
		strings.NewReader(invoice))
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(r)
	if err != nil {
		// Here the outcome is unknown. To ask later, set the Idempotency-Key yourself, and keep it.
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	answer := resp.Status
	if resp.Header.Get("Idempotent-Replayed") == "true" {
		answer += ", the one that was lost"
	}
	return answer
}

// report prints what each payment took, and counts the payments that the server has made.
func report(out io.Writer, payments []*payment, server *flaky) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PAYMENT\tSENT\tFAILURES\tANSWER\tLANDED")
	sent, once := 0, 0
	for _, p := range payments {
		landed := server.landed(p.id)
		sent += len(p.failures) + 1
		if landed == 1 {
			once++
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\n", p.id, len(p.failures)+1,
			strings.Join(p.failures, ", "), p.answer, landed)
	}
	_ = w.Flush()
	_, _ = fmt.Fprintf(out, "%d payments, sent %d times: %d landed once\n", len(payments),
		sent, once)
	if once != len(payments) {
		return errors.New("a payment is missing, or has landed twice")
	}
	return nil
}
