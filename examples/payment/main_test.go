package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/retry"
)

// shop is the API of main, over a database of its own.
type shop struct {
	*testing.T
	url    string
	client *http.Client
	db     *sql.DB
	name   string
	lose   atomic.Int32 // answers that do not arrive
}

// forEach runs a test on SQLite, and on PostgreSQL where there is one.
func forEach(t *testing.T, test func(s *shop)) {
	t.Run("sqlite", func(t *testing.T) { test(newShop(t, "", "")) })
	t.Run("postgres", func(t *testing.T) { test(postgresShop(t)) })
}

// postgresShop uses a schema of its own.
func postgresShop(t *testing.T) *shop {
	dsn, name := servertest.Postgres(t), servertest.Prefix(t)
	admin, _, done, err := open(dsn)
	require.NoError(t, err)
	t.Cleanup(done)
	t.Cleanup(func() { must(t, admin, `DROP SCHEMA `+name+` CASCADE`) })
	must(t, admin, `CREATE SCHEMA `+name)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", name)
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return newShop(t, u.String(), name)
}

func must(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), query, args...)
	require.NoError(t, err)
}

func newShop(t *testing.T, dsn, name string) *shop {
	t.Helper()
	key, err := readSealKey("", false)
	require.NoError(t, err)
	db, dialect, done, err := open(dsn)
	require.NoError(t, err)
	t.Cleanup(done)
	h, err := newAPI(t.Context(), db, dialect, key)
	require.NoError(t, err)
	s := &shop{T: t, db: db, name: name}
	server := httptest.NewServer(s.losing(h))
	t.Cleanup(server.Close)
	// This client asks again while its payment is in flight.
	transport, err := retry.NewTransport(nil,
		retry.TransportConfig{Policy: retry.Policy{Budget: retry.Unlimited()}})
	require.NoError(t, err)
	s.url, s.client = server.URL, &http.Client{Transport: transport}
	return s
}

// losing lets the handler run. While s.lose is more than 0, it then closes the connection instead
// of answering.
func (s *shop) losing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.lose.Load() > 0 && s.lose.Add(-1) >= 0 {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

type reply struct {
	status   int
	body     string
	etag     string
	replayed bool
}

func (s *shop) send(method, path, who, body string, header ...string) reply {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+who)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.Error(err)
		return reply{}
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Error(err)
	}
	return reply{resp.StatusCode, string(all), resp.Header.Get("ETag"),
		resp.Header.Get("Idempotent-Replayed") == "true"}
}

func (s *shop) pay(who, key string, amount int) reply {
	to := map[string]string{"alice": "bob", "bob": "alice"}[who]
	return s.send(http.MethodPost, "/payments", who,
		fmt.Sprintf(`{"to":%q,"amount":%d}`, to, amount), "Idempotency-Key", fmt.Sprintf("%q", key))
}

func (s *shop) wantBalance(who string, want, payments int) {
	s.Helper()
	var got struct{ Balance int }
	if err := json.Unmarshal([]byte(s.send(http.MethodGet, "/account", who, "").body),
		&got); err != nil {
		s.Fatal(err)
	}
	var n int
	if err := s.db.QueryRowContext(s.Context(),
		`SELECT count(*) FROM payment`).Scan(&n); err != nil || got.Balance != want ||
		n != payments {
		s.Errorf("%s has %d after %d payments, %v; want %d after %d", who, got.Balance, n,
			err, want, payments)
	}
}

func TestDuplicate(t *testing.T) {
	forEach(t, func(s *shop) {
		first, again := s.pay("alice", "1", 100), s.pay("alice", "1", 100)
		if first.status != 201 || first.replayed || again.body != first.body ||
			again.status != 201 || !again.replayed {
			s.Errorf("%+v, then %+v", first, again)
		}
		if other := s.pay("alice", "1", 200); other.status != 422 {
			s.Errorf("the key with another payment: %+v", other)
		}
		if bobs := s.pay("bob", "1", 100); bobs.status != 201 || bobs.replayed {
			s.Errorf("the key of another customer: %+v", bobs)
		}
		if nobody := s.pay("mallory", "1", 100); nobody.status != 401 {
			s.Errorf("of nobody: %+v", nobody)
		}
		s.wantBalance("alice", 1000, 2)
		// A refused payment stays refused, and books nothing. alice's row is written first, and
		// must be rolled back.
		for _, replayed := range []bool{false, true} {
			r := s.send(http.MethodPost, "/payments", "alice", `{"to":"nobody","amount":10}`,
				"Idempotency-Key", `"2"`)
			if r.status != 402 || r.replayed != replayed {
				s.Errorf("to nobody: %+v", r)
			}
		}
		s.wantBalance("alice", 1000, 2)
		var stored []byte
		if err := s.db.QueryRowContext(s.Context(),
			`SELECT result FROM onceward_marks_results`).Scan(&stored); err != nil ||
			len(stored) == 0 || strings.Contains(string(stored), "amount") {
			s.Errorf("in clear: %q, %v", stored, err)
		}
	})
}

func TestConcurrentDuplicates(t *testing.T) {
	forEach(t, func(s *shop) {
		const clients = 20
		replies := make([]reply, clients)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() { replies[i] = s.pay("alice", "1", 100) })
		}
		wg.Wait()
		first := 0
		for _, r := range replies {
			if r.status != 201 || r.body != replies[0].body {
				s.Errorf("%+v beside %+v", r, replies[0])
			}
			if !r.replayed {
				first++
			}
		}
		if first != 1 {
			s.Errorf("%d are the first", first)
		}
		s.wantBalance("alice", 900, 1)
	})
}

// The connection is killed during a payment, which is rolled back and answered with 503. The client
// sends it again.
func TestKilledConnection(t *testing.T) {
	s := postgresShop(t)
	locked, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = locked.Rollback() }()
	_, err = locked.ExecContext(t.Context(),
		`UPDATE account SET note = 'locked' WHERE id = 'bob'`)
	require.NoError(t, err)
	paid := make(chan reply, 1)
	go func() { paid <- s.pay("alice", "1", 100) }()
	for killed := 0; killed == 0 && t.Context().Err() == nil; { // until it waits for bob's account
		err := s.db.QueryRowContext(t.Context(),
			`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity`+
				` WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE 'UPDATE account%'`, s.name).Scan(&killed)
		require.NoError(t, err)
	}
	require.NoError(t, locked.Rollback())
	r := <-paid
	assert.Equal(t, 201, r.status, "%+v", r)
	assert.False(t, r.replayed, "%+v", r)
	r = s.pay("alice", "1", 100)
	assert.True(t, r.replayed, "again: %+v", r)
	s.wantBalance("alice", 900, 1)
	s.wantBalance("bob", 1100, 1)
}

func TestSealKey(t *testing.T) {
	_, err := readSealKey("", true)
	assert.Error(t, err, "PostgreSQL with a key that goes with the process")
	_, err = readSealKey(rand.Text(), false)
	assert.Error(t, err, "a key of another form")
	key, err := readSealKey(strings.Repeat("0f", 32), true)
	assert.NoError(t, err)
	assert.Len(t, key, 32)
}
