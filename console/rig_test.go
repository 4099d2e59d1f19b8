package console

import (
	"context"
	"encoding/hex"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

const testWindow = 72 * time.Hour

// listedStore is a store in memory that lists its claims, and can be made to fail.
type listedStore struct {
	dedup.Store

	mu      sync.Mutex
	ids     []driver.ID
	err     error
	foreign int
	writes  int              // of any kind
	before  func(*driver.ID) // a Claim, once
}

func newStore() *listedStore { return &listedStore{Store: dedup.Memory(1000)} }

func (s *listedStore) fail(err error) { s.mu.Lock(); defer s.mu.Unlock(); s.err = err }

func (s *listedStore) written() int { s.mu.Lock(); defer s.mu.Unlock(); return s.writes }

func (s *listedStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	s.mu.Lock()
	s.writes++
	before := s.before
	s.before = nil
	for i := range reqs {
		s.ids = append(s.ids, reqs[i].ID)
	}
	s.mu.Unlock()
	if before != nil {
		before(&reqs[0].ID)
	}
	return s.Store.Claim(ctx, reqs)
}

func (s *listedStore) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Store.Finish(ctx, changes)
}

func (s *listedStore) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Store.Forget(ctx, ids, hold)
}

func (s *listedStore) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return []driver.Answer{{Err: err}}
	}
	return s.Store.Lookup(ctx, ids)
}

func (s *listedStore) Keys(ctx context.Context, cursor string, limit int, states []driver.State,
	each func(driver.ID, dedup.Record)) (string, int, error) {
	s.mu.Lock()
	ids, err, foreign := s.ids, s.err, s.foreign
	s.mu.Unlock()
	if err != nil {
		return "", 0, err
	}
	n := 0
	for _, id := range ids {
		name := hex.EncodeToString(id[:])
		if cursor != "" {
			if name == cursor {
				cursor = ""
			}
			continue
		}
		r := s.Store.Lookup(ctx, []driver.ID{id})[0].Record
		for _, state := range states {
			if r.State == state {
				r.Result = nil
				each(id, r)
				n++
			}
		}
		if n == limit {
			return name, foreign, nil
		}
	}
	return "", foreign, nil
}

// rig is a console over a store with these keys of namespace shop: done, failed, flying, doubtful.
type rig struct {
	t       *testing.T
	store   *listedStore
	console *Console
	deduper *dedup.Deduper
	log     *strings.Builder
	cookies []*http.Cookie
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, store: newStore(), log: &strings.Builder{}}
	o.Store, o.Logger = r.store, slog.New(slog.NewTextHandler(&lockedWriter{w: r.log}, nil))
	c, err := New(o)
	require.NoError(t, err)
	r.console = c
	observer, err := c.Observer("shop", testWindow)
	require.NoError(t, err)
	r.deduper, err = dedup.New(r.store,
		dedup.Config{Namespace: "shop", Window: testWindow, LeaseTTL: time.Minute, Labels: true,
			Observer: observer})
	require.NoError(t, err)
	r.end("done", func(c *dedup.Claim) error {
		return c.Complete(t.Context(), []byte("secret <b>result</b>"))
	})
	r.end("failed", func(c *dedup.Claim) error {
		return c.Fail(t.Context(), dedup.Permanent(io.ErrUnexpectedEOF))
	})
	r.end("flying", func(*dedup.Claim) error {
		return nil
	}, func(r *dedup.Request) { r.Label = "<script>alert(1)</script>" },
		func(r *dedup.Request) {
			r.Origin = driver.Origin{Source: "orders", Partition: 3, Offset: 77, Generation: 5}
		})
	r.doubt("doubtful")
	return r
}

func (r *rig) end(key string, end func(*dedup.Claim) error, opts ...dedup.Option) {
	r.t.Helper()
	c, err := r.deduper.Claim(r.t.Context(), key, opts...)
	require.NoError(r.t, err)
	require.Equal(r.t, dedup.Acquired, c.Outcome)
	require.NoError(r.t, end(c))
}

// doubt leaves a key uncertain.
func (r *rig) doubt(key string, opts ...dedup.Option) {
	r.t.Helper()
	_, err := dedup.Do(r.t.Context(), r.deduper, key, func(ctx context.Context) (int, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return 0, err
		}
		return 0, io.ErrUnexpectedEOF
	}, opts...)
	require.ErrorIs(r.t, err, io.ErrUnexpectedEOF)
	require.Equal(r.t, driver.StateUncertain, r.state(key))
}

func idOf(key string) driver.ID {
	id, err := driver.NewID("shop", "", key)
	if err != nil {
		panic(err)
	}
	return id
}

func hexOf(key string) string { id := idOf(key); return hex.EncodeToString(id[:]) }

func (r *rig) state(key string) driver.State {
	return r.store.Store.Lookup(context.Background(), []driver.ID{idOf(key)})[0].Record.State
}

// do sends a request with the rig's cookies, and keeps the cookies it gets.
func (r *rig) do(method, target string, form url.Values,
	edit ...func(*http.Request)) *httptest.ResponseRecorder {
	r.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req := httptest.NewRequestWithContext(r.t.Context(), method, target, body)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range r.cookies {
		req.AddCookie(c)
	}
	for _, e := range edit {
		e(req)
	}
	w := httptest.NewRecorder()
	r.console.ServeHTTP(w, req)
	if got := w.Result().Cookies(); len(got) > 0 {
		r.cookies = got
	}
	return w
}

// shows gets a page, and checks its status and the parts that it must and must not have.
func (r *rig) shows(target string, status int, parts ...string) string {
	r.t.Helper()
	w := r.do(http.MethodGet, target, nil)
	return compare(r.t, "GET "+target, w, status, parts...)
}

func compare(t *testing.T, what string, w *httptest.ResponseRecorder, status int,
	parts ...string) string {
	t.Helper()
	body := w.Body.String()
	assert.Equal(t, status, w.Code, "%s\n%s", what, text(body))
	for _, p := range parts {
		if p, not := strings.CutPrefix(p, "!"); not {
			assert.NotContains(t, body, p, what)
		} else {
			assert.Contains(t, body, p, what)
		}
	}
	return body
}

var tag = regexp.MustCompile(`<[^>]*>`)

func text(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(page, " "))), " ")
}

var hiddenField = regexp.MustCompile(`name="(\w+)" value="([^"]*)"`)

// question opens the page with the question, and returns its form.
func (r *rig) question(do, key string) url.Values {
	r.t.Helper()
	page := r.shows("/change?do="+do+"&id="+hexOf(key), http.StatusOK, `name="token"`)
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}
