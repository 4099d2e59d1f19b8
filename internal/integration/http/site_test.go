package http_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

// account returns the principal, which something in front of the handler has authenticated.
func account(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// site is a server with the middleware, and a client that writes its requests by hand.
type site struct {
	*testing.T
	fixture *fixture
	server  *httptest.Server
	runs    atomic.Int64
	name    string // begins what is booked

	begun, release chan struct{} // of a handler that holds
}

// newSite serves a handler: nil is shop.
func newSite(t *testing.T, p *fixture, name string, cfg httpadapter.Config,
	handle func(*site) http.HandlerFunc) *site {
	t.Helper()
	s := &site{T: t, fixture: p, name: name, begun: make(chan struct{}),
		release: make(chan struct{})}
	serve := http.HandlerFunc(s.shop)
	if handle != nil {
		serve = handle(s)
	}
	cfg.Name = name // the site shares its store with others
	m, err := httpadapter.New(p.run, account, cfg)
	require.NoError(t, err)
	s.server = httptest.NewServer(
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.runs.Add(1)
			serve(w, r)
		})))
	t.Cleanup(s.server.Close)
	return s
}

// shop books an order. Its answers differ from run to run.
func (s *site) shop(w http.ResponseWriter, r *http.Request) {
	if err := s.fixture.ledger.book(r.Context(), s.name); err != nil {
		s.Error(err)
	}
	s.created(w, r)
}

func (s *site) created(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.Error(err)
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", s.runs.Load()))
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "run %d of %s %s %s\x00", s.runs.Load(), r.Method, r.URL, body)
}

// holding waits for release, and is then shop.
func (s *site) holding(w http.ResponseWriter, r *http.Request) {
	close(s.begun)
	<-s.release
	s.shop(w, r)
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// request has the text of a request, except the lines that every request has.
type request struct {
	method, target string
	lines          []string // of the head
	body           string
}

// order is a POST, with or without a line of the head for the key.
func order(lines ...string) request {
	return request{method: http.MethodPost, target: "/orders", lines: lines, body: `{"amount":100}`}
}

func key(value string) string { return "Idempotency-Key: " + value }

func (r request) by(account string) request {
	r.lines = append(slices.Clone(r.lines), "X-Account: "+account)
	return r
}

func (r request) to(method, target string) request {
	r.method, r.target = method, target
	return r
}

func (r request) with(body string) request {
	r.body = body
	return r
}

// text is what goes over the wire.
func (r request) text() string {
	lines := r.lines
	if !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "X-Account:")
	}) {
		lines = append(slices.Clone(lines), "X-Account: acme")
	}
	if !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "Content-Type:")
	}) {
		lines = append(slices.Clone(lines), "Content-Type: application/json")
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: api.example\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n\r\n%s",
		r.method, r.target, len(r.body), strings.Join(lines, "\r\n"), r.body)
}

// send writes the request and reads the answer.
func (s *site) send(r request) answer {
	s.Helper()
	a, err := exchange(s.server.Listener.Addr().String(), r)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

func exchange(addr string, r request) (answer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, r.text()); err != nil {
		return answer{}, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}

// wantFirst checks an answer of the handler's run of that number. The shop has booked it.
func (s *site) wantFirst(a answer, run int) {
	s.Helper()
	if a.status != http.StatusCreated ||
		!strings.HasPrefix(a.body, fmt.Sprintf("run %d of ", run)) {
		s.Errorf("got %d %q, want 201 of run %d", a.status, a.body, run)
	}
	if got := a.header.Get("Idempotent-Replayed"); got != "" {
		s.Errorf("Idempotent-Replayed: %q of a first answer", got)
	}
	s.wantRuns(run)
}

// wantReplay checks that again is first once more: its status, its headers and its bytes. Only the
// rest of the window is shorter by then.
func (s *site) wantReplay(first, again answer) {
	s.Helper()
	if again.header.Get("Idempotent-Replayed") != "true" {
		s.Errorf("no replay: %d %q %v", again.status, again.body, again.header)
	}
	if again.status != first.status || again.body != first.body {
		s.Errorf("replayed %d %q, want %d %q", again.status, again.body, first.status, first.body)
	}
	own := func(h http.Header) http.Header {
		h = maps.Clone(h)
		h.Del("Date")
		h.Del("Idempotent-Replayed")
		h.Del("Idempotency-Window")
		return h
	}
	if !maps.EqualFunc(own(first.header), own(again.header), slices.Equal) {
		s.Errorf("replayed headers %v, want %v", again.header, first.header)
	}
	if window, err := strconv.Atoi(first.header.Get("Idempotency-Window")); err == nil {
		s.wantSeconds(again, "Idempotency-Window", window-3600, window)
	}
}

// wantProblem checks a body of RFC 9457 whose type leads to the documentation of that name.
func (s *site) wantProblem(a answer, status int, name string) {
	s.Helper()
	var problem struct {
		Type, Title string
		Status      int
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
		s.Errorf("%d %q is no problem: %v", a.status, a.body, err)
		return
	}
	if a.status != status || problem.Status != status || problem.Title == "" ||
		a.header.Get("Content-Type") != "application/problem+json" {
		s.Errorf("got %d %q, want a problem of %d", a.status, a.body, status)
	}
	if !strings.HasPrefix(problem.Type, "https://") ||
		!strings.HasSuffix(problem.Type, "/docs/reference/http.md#"+name) {
		s.Errorf("type %q, want the anchor of %s", problem.Type, name)
	}
}

// wantRuns checks how often the handler has begun.
func (s *site) wantRuns(want int) {
	s.Helper()
	if got := s.runs.Load(); got != int64(want) {
		s.Errorf("the handler ran %d times, want %d", got, want)
	}
}

// wantOrders checks the ledger.
func (s *site) wantOrders(want int) {
	s.Helper()
	if got := s.fixture.counts(s.T)[s.name]; got != want {
		s.Errorf("%d orders are booked, want %d", got, want)
	}
}

// wantSeconds checks a header that has a number of seconds.
func (s *site) wantSeconds(a answer, name string, least, most int) {
	s.Helper()
	if n, err := strconv.Atoi(a.header.Get(name)); err != nil || n < least || n > most {
		s.Errorf("%s: %q, want %d to %d", name, a.header.Get(name), least, most)
	}
}
