package http_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/httpadapter"
)

// TestTenants: 1,000 tenants (50 over most stores) send one key, for one route, with one body, at
// the same time, and then again. Each has its own effect, and gets its own answer and no byte of
// another tenant's.
func TestTenants(t *testing.T) {
	each(t, backends, func(t *testing.T, b backend) {
		tenants := 1000
		if !b.crowded {
			tenants = 50
		}
		p := b.open(t, day, 4*lease) // longer than the slowest machine takes for all of them
		s := newSite(t, p, "tenants", httpadapter.Config{}, tellingTenants)
		client := crowd(t, s.server, tenants)
		for range 2 {
			var all sync.WaitGroup
			start := make(chan struct{})
			for _, n := range rand.Perm(tenants) {
				all.Go(func() {
					<-start
					s.asks(client, fmt.Sprintf("tenant-%04d", n))
				})
			}
			close(start)
			all.Wait()
		}
		effects := p.counts(t)
		assert.Len(t, effects, tenants, "tenants with effects")
		for tenant, n := range effects {
			assert.Equal(t, 1, n, "%s has %d effects", tenant, n)
		}
	})
}

// tellingTenants answers with the secret of the tenant.
func tellingTenants(s *site) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tenant := r.Header.Get("X-Account")
		if err := s.fixture.ledger.book(r.Context(), tenant); err != nil {
			s.Error(err)
		}
		w.Header().Set("Location", "/of/"+tenant)
		_, _ = io.WriteString(w, secretOf(tenant))
	}
}

// asks sends a tenant's request until it is answered: a machine that is too busy answers 503, which
// must have no secret.
func (s *site) asks(client *http.Client, tenant string) {
	for range 20 {
		a, err := post(s.Context(), client, s.server.URL, tenant)
		switch {
		case err != nil:
			s.Error(err)
			return
		case a.status == 503 && !strings.Contains(a.body, "secret of"):
			continue
		case a.status != 200 || a.body != secretOf(tenant) ||
			a.header.Get("Location") != "/of/"+tenant:
			s.Errorf("%s got %d %q %v", tenant, a.status, a.body, a.header)
		}
		return
	}
	s.Errorf("%s got no answer", tenant)
}

// secretOf returns a secret that contains the name of its tenant.
func secretOf(tenant string) string { return strings.Repeat("secret of "+tenant+". ", 20) }

// crowd is a client that keeps that many connections.
func crowd(t *testing.T, server *httptest.Server, connections int) *http.Client {
	transport := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

func post(ctx context.Context, client *http.Client, url, tenant string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders",
		strings.NewReader(`{"amount":100}`))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("X-Account", tenant)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"1"`)
	res, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}
