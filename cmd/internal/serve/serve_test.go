package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const testWindow = 24 * time.Hour

// command is a running command.
type command struct {
	t      *testing.T
	lines  chan string
	cancel context.CancelFunc
	ended  chan int
	errOut *locked
}

type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	c := &command{t: t, lines: make(chan string, 10), cancel: cancel, ended: make(chan int, 1),
		errOut: &locked{}}
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	go func() {
		c.ended <- execute(ctx, args, out, c.errOut)
		_ = out.Close()
	}()
	t.Cleanup(func() { c.stop(cli.Interrupted) })
	return c
}

// stop interrupts the command, once.
func (c *command) stop(code int) {
	c.t.Helper()
	if c.ended == nil {
		return
	}
	c.cancel()
	assert.Equal(c.t, code, <-c.ended, c.errOut)
	c.ended = nil
}

// line returns the next printed line.
func (c *command) line() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case code := <-c.ended:
		c.ended = nil
		c.t.Fatalf("ended with %d: %s", code, c.errOut)
	case <-time.After(30 * time.Second):
		c.t.Fatal("nothing was printed")
	}
	return ""
}

func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &http.Client{Jar: jar, Timeout: 30 * time.Second}
}

func get(t *testing.T, client *http.Client, at string, edit ...func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	require.NoError(t, err)
	for _, e := range edit {
		e(req)
	}
	response, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(page)
}

// inSQLite is a store with an uncertain key, and its flags.
func inSQLite(t *testing.T) (dedup.Store, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.db")
	db, err := sqladapter.OpenSQLite("sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqladapter.SQLite})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	fill(t, store)
	return store, []string{"--sql", "sqlite:" + file, "--namespace", "shop"}
}

// fill leaves the key doubtful of namespace shop uncertain.
func fill(t *testing.T, store dedup.Store) {
	t.Helper()
	layout, ok := store.(*redisadapter.Store)
	d, err := dedup.New(store, dedup.Config{Namespace: "shop", Window: testWindow,
		LeaseTTL: time.Minute, SeenOnly: ok && layout.Limits().NoResults})
	require.NoError(t, err)
	_, err = dedup.Do(t.Context(), d, "doubtful", func(ctx context.Context) ([]byte, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return nil, err
		}
		return nil, errors.New("the downstream did not answer")
	})
	require.Equal(t, driver.StateUncertain, state(t, store), err)
}

func doubtful() driver.ID {
	id, err := driver.NewID("shop", "", "doubtful")
	if err != nil {
		panic(err)
	}
	return id
}

func state(t *testing.T, store dedup.Store) driver.State {
	t.Helper()
	a := store.Lookup(t.Context(), []driver.ID{doubtful()})[0]
	require.NoError(t, a.Err)
	return a.Record.State
}

var hidden = regexp.MustCompile(`name="(\w+)" value="([^"]*)"`)

// resolve does what a browser does, from the printed address until the key is done.
func resolve(t *testing.T, c *command, store dedup.Store) {
	t.Helper()
	id := doubtful()
	client := browser(t)
	status, page := get(t, client, c.line())
	require.Equal(t, http.StatusOK, status, "status %d\n%s", status, page)
	require.Contains(t, page, "No Deduper tells this console", "status %d\n%s", status, page)
	require.Contains(t, page, "1</span> uncertain", "status %d\n%s", status, page)
	next := c.line()
	base, token, _ := strings.Cut(strings.TrimPrefix(next, "for another browser: "), "?token=")
	require.NotEqual(t, "", token, "printed %q", next)
	require.True(t, strings.HasPrefix(base, "http://127.0.0.1:"), "printed %q", next)
	_, page = get(t, client, base+"uncertain")
	require.Contains(t, page, hex.EncodeToString(id[:]), "not listed: %s", page)
	_, page = get(t, client, base+"change?do=done&id="+hex.EncodeToString(id[:]))
	form := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	response, err := client.PostForm(base+"change", form)
	require.NoError(t, err)
	_ = response.Body.Close()
	got := state(t, store)
	assert.Equal(t, http.StatusOK, response.StatusCode, "status %d, the key is %v: %s",
		response.StatusCode, got, page)
	assert.Equal(t, driver.StateSucceeded, got, "status %d, the key is %v: %s",
		response.StatusCode, got, page)
	text := c.errOut.String()
	assert.Contains(t, text, "console: changed", "the log has %q", text)
	assert.Contains(t, text, "do=done", "the log has %q", text)
	assert.Contains(t, text, "who=", "the log has %q", text)
}

func TestSQLite(t *testing.T) {
	store, flags := inSQLite(t)
	c := start(t, append(flags, "--changes", "--window", "24h")...)
	resolve(t, c, store)
	c.stop(cli.Interrupted)
	assert.Contains(t, c.errOut.String(), "onceward console: interrupted", "said %q", c.errOut)
}

func TestRedis(t *testing.T) {
	for _, layout := range []redisadapter.Layout{redisadapter.Full, redisadapter.Compact} {
		t.Run(layout.String(), func(t *testing.T) {
			addr := servertest.Private(t, servertest.KindRedis).Addr
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = client.Close() })
			opts := redisadapter.Options{Prefix: servertest.Prefix(t), Layout: layout,
				OnFinding: func(preflight.Finding) {}}
			flags := []string{"--redis", "redis://" + addr, "--prefix", opts.Prefix, "--changes",
				"--window", "24h"}
			if layout == redisadapter.Compact {
				t.Setenv("SECRET", "0123456789abcdef")
				opts.Secret, opts.Window, opts.ExpectedKeys = []byte("0123456789abcdef"),
					testWindow, 1000
				// the window is in the layout
				flags = append(flags[:len(flags)-2], "--secret-env", "SECRET")
			}
			store, err := redisadapter.New(t.Context(), client, opts)
			require.NoError(t, err)
			fill(t, store)
			resolve(t, start(t, flags...), store)
		})
	}
}

// Without --changes nobody can change anything.
func TestReadOnly(t *testing.T) {
	store, flags := inSQLite(t)
	c := start(t, flags...)
	client := browser(t)
	at := c.line()
	get(t, client, at)
	base, _, _ := strings.Cut(at, "?")
	id := doubtful()
	status, _ := get(t, client, base+"change?do=done&id="+
		hex.EncodeToString(id[:]))
	assert.Equal(t, http.StatusForbidden, status, "status %d", status)
	assert.Equal(t, driver.StateUncertain, state(t, store), "status %d", status)
}

// The printed address lets one browser in, once.
func TestToken(t *testing.T) {
	_, flags := inSQLite(t)
	c := start(t, flags...)
	at := c.line()
	base, _, _ := strings.Cut(at, "?")
	one, two := browser(t), browser(t)
	for _, test := range []struct {
		client *http.Client
		at     string
		status int
		edit   []func(*http.Request)
	}{
		{one, base, 403, nil},
		{one, base + "uncertain", 403, nil},
		{one, base + "?token=" + strings.Repeat("A", 26), 403, nil},
		{one, base + "uncertain?token=" + strings.Repeat("A", 26), 403, nil},
		{one, at, 421, []func(*http.Request){func(r *http.Request) { r.Host = "evil.example" }}},
		{one, at, 200, nil},
		{one, base + "inflight", 200, nil},
		{one, base + "inflight", 421, []func(*http.Request){func(r *http.Request) {
			r.Host = "evil.example:80"
		}}},
		{two, at, 403, nil},
		{two, base, 403, nil},
		{two, base, 403, []func(*http.Request){func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookiePrefix + "guessing", Value: "guess"})
		}}},
	} {
		status, page := get(t, test.client, test.at, test.edit...)
		assert.Equal(t, test.status, status, "%s: status %d, want %d", test.at, status,
			test.status)
		assert.False(t, status != 200 && strings.Contains(page, "<main"),
			"%s: status %d, want %d", test.at, status, test.status)
	}
	status, _ := get(t, two,
		strings.TrimPrefix(c.line(), "for another browser: "))
	assert.Equal(t, 200, status, "the second address: status %d", status)
}

func TestPassesAreBounded(t *testing.T) {
	token := ""
	g := newGate(http.NotFoundHandler(), func(next string) { token = next })
	for range 3 * maxPasses {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/?token="+token, nil)
		r.Host = "localhost:1"
		g.ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Contains(t, w.Header().Get("Set-Cookie"), "HttpOnly; SameSite=Strict")
	}
	assert.Len(t, g.passes, maxPasses, "%d passes", len(g.passes))
}

func TestRefuses(t *testing.T) {
	_, flags := inSQLite(t)
	sqlite := strings.Join(flags, " ")
	for args, want := range map[string]string{
		"":                                               "--redis or --sql is missing",
		sqlite + " --listen 0.0.0.0:0":                   "not of this machine alone",
		sqlite + " --listen :0":                          "not of this machine alone",
		sqlite + " --listen example.com:80":              "not of this machine alone",
		sqlite + " --listen nowhere":                     "not host:port",
		sqlite + " --window -1s":                         "--window is -1s",
		sqlite + " --hold -1s":                           "--hold is -1s",
		sqlite + " --table nothing":                      "nothing",
		sqlite + " --listen 127.0.0.1:99999":             "--listen",
		"--redis redis://:hunter22@127.0.0.1:1":          "127.0.0.1:1",
		"--sql sqlite:/nowhere/at/all":                   "no database",
		sqlite + " more":                                 `unexpected argument "more"`,
		"--redis redis://x --table t --listen 0.0.0.0:0": "need --sql",
	} {
		var out, errOut bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), &out, &errOut)
		assert.Equal(t, cli.Usage, code, args)
		assert.Contains(t, errOut.String(), want, args)
		assert.NotContains(t, errOut.String(), "hunter22", args)
	}
}
