// Package console_test tests the pages of package console over real stores, and with a real
// browser.
package console_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"html"
	"io"
	"log/slog"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/console"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const window = 24 * time.Hour

// stores are the stores that the pages are tested over.
var stores = map[string]func(t *testing.T) dedup.Store{
	"redis full":    func(t *testing.T) dedup.Store { return onRedis(t, redisadapter.Full) },
	"redis compact": func(t *testing.T) dedup.Store { return onRedis(t, redisadapter.Compact) },
	"sqlite": func(t *testing.T) dedup.Store {
		db, err := sqladapter.OpenSQLite("sqlite", "file:"+filepath.Join(t.TempDir(), "claims.db")+
			"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)")
		return onSQL(t, sqladapter.SQLite, db, err)
	},
	"postgres": func(t *testing.T) dedup.Store {
		db, err := sql.Open("pgx", servertest.Postgres(t))
		return onSQL(t, sqladapter.Postgres, db, err)
	},
	"mariadb": func(t *testing.T) dedup.Store {
		db, err := sql.Open("mysql", servertest.MariaDB(t))
		return onSQL(t, sqladapter.MySQL, db, err)
	},
}

func onRedis(t *testing.T, layout redisadapter.Layout) *redisadapter.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servertest.Private(t,
		servertest.KindRedis).Addr})
	t.Cleanup(func() { _ = client.Close() })
	opts := redisadapter.Options{Prefix: servertest.Prefix(t), Layout: layout,
		OnFinding: func(preflight.Finding) {}}
	if layout == redisadapter.Compact {
		opts.Secret, opts.Window, opts.ExpectedKeys = []byte("0123456789abcdef"), window, 1000
	}
	store, err := redisadapter.New(t.Context(), client, opts)
	require.NoError(t, err)
	return store
}

func onSQL(t *testing.T, dialect sqladapter.Dialect, db *sql.DB, err error) *sqlstore.Store {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlstore.New(db,
		sqlstore.Options{Dialect: dialect, Table: servertest.Prefix(t)})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	t.Cleanup(func() { _ = store.Drop(context.Background()) })
	return store
}

// rig is a console over a store with the keys done, flying and doubtful of namespace shop.
type rig struct {
	t       *testing.T
	store   dedup.Store
	deduper *dedup.Deduper
	client  *http.Client
	url     string
	small   bool // the store remembers only that a key is done
}

func newRig(t *testing.T, store dedup.Store) *rig {
	t.Helper()
	c, err := console.New(console.Options{
		Store: store, Name: "shop", Namespace: "shop", Window: window, AllowChanges: true,
		Logger: slog.New(slog.DiscardHandler),
		ShowResult: func(_ driver.ID, b []byte) string {
			return "shown: " + strings.ToUpper(string(b))
		},
	})
	require.NoError(t, err)
	observer, err := c.Observer("shop", window)
	require.NoError(t, err)
	layout, ok := store.(*redisadapter.Store)
	r := &rig{t: t, store: store, small: ok && layout.Limits().NoResults}
	r.deduper, err = dedup.New(store, dedup.Config{
		Namespace: "shop", Window: window, LeaseTTL: time.Minute, Labels: true,
		SeenOnly: r.small, Observer: observer,
	})
	require.NoError(t, err)
	done, err := r.deduper.Claim(t.Context(), "done")
	require.NoError(t, err)
	var result []byte
	if !r.small {
		result = []byte("receipt")
	}
	require.NoError(t, done.Complete(t.Context(), result))
	_, err = r.deduper.Claim(t.Context(), "flying", func(r *dedup.Request) {
		r.Label, r.Origin = "order 7", driver.Origin{Source: "orders", Partition: 3, Offset: 77}
	})
	require.NoError(t, err)
	r.doubt("doubtful")
	server := httptest.NewServer(http.StripPrefix("/console", c))
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	r.url, r.client = server.URL+"/console/", server.Client()
	r.client.Jar = jar
	return r
}

// doubt leaves a key uncertain: its attempt fails after MarkIrreversible.
func (r *rig) doubt(key string, opts ...dedup.Option) {
	r.t.Helper()
	silent := errors.New("the downstream did not answer")
	_, err := dedup.Do(r.t.Context(), r.deduper, key, func(ctx context.Context) ([]byte, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return nil, err
		}
		return nil, silent
	}, opts...)
	require.ErrorIs(r.t, err, silent)
	require.Equal(r.t, driver.StateUncertain, r.state(key))
}

// marked leaves a key in flight until the test ends, with an attempt past its point of no return.
func (r *rig) marked(key string) {
	r.t.Helper()
	marked, end := make(chan error, 1), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		run := func(ctx context.Context) ([]byte, error) {
			marked <- dedup.MarkIrreversible(ctx)
			<-end
			return nil, nil
		}
		_, err := dedup.Do(r.t.Context(), r.deduper, key, run)
		select {
		case marked <- err: // the attempt was not begun
		default:
		}
	})
	r.t.Cleanup(func() { close(end); running.Wait() })
	require.NoError(r.t, <-marked)
}

func (r *rig) state(key string) driver.State {
	r.t.Helper()
	rec, err := r.deduper.Lookup(r.t.Context(), key)
	require.NoError(r.t, err)
	return rec.State
}

func id(key string) string {
	id, err := driver.NewID("shop", "", key)
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(id[:])
}

// shows requests a page, by POST if there is a form, and checks its status and its parts.
func (r *rig) shows(target string, form url.Values, status int, parts ...string) string {
	r.t.Helper()
	var response *http.Response
	var err error
	if form == nil {
		response, err = r.client.Get(r.url + target)
	} else {
		response, err = r.client.PostForm(r.url+target, form)
	}
	require.NoError(r.t, err)
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	assert.Equal(r.t, status, response.StatusCode, target)
	for _, p := range parts {
		if p, not := strings.CutPrefix(p, "!"); not {
			assert.NotContains(r.t, string(page), p, target)
		} else {
			assert.Contains(r.t, string(page), p, target)
		}
	}
	return string(page)
}

var hidden = regexp.MustCompile(`name="(\w+)" value="([^"]*)"`)

// formOf reads the fields of a page's form.
func formOf(page string) url.Values {
	form := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(page, -1) {
		form.Add(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// change asks for a change, and confirms it.
func (r *rig) change(do, key string, status int, parts ...string) {
	r.t.Helper()
	form := formOf(r.shows("change?do="+do+"&id="+id(key), nil, http.StatusOK))
	r.shows("change", form, status, parts...)
}

// TestStores: for every kind of store the pages show the data that it keeps, and change it.
func TestStores(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, open(t))
			_, err := r.deduper.Claim(t.Context(), "done") // a duplicate
			require.NoError(t, err)
			r.marked("marked")
			r.shows("", nil, 200, `1</span> others in flight`, `1</span> uncertain`,
				`1</span> past the point of no return`, "Claims, by outcome")
			page := r.shows("inflight", nil, 200, id("flying"), "!"+id("doubtful"),
				"partition 3, offset 77", "order 7", "s left")
			marked, others, _ := strings.Cut(page, "Other keys in flight")
			assert.Contains(t, marked, id("marked"))
			assert.NotContains(t, marked, id("flying"))
			assert.NotContains(t, others, id("marked"))
			r.shows("uncertain", nil, 200, id("doubtful"), "!"+id("flying"), "!"+id("marked"))
			done := []string{"succeeded", "shown: RECEIPT", "7 bytes"}
			if r.small {
				done = []string{"succeeded", "not kept", "remembers only that the key is done"}
			}
			r.shows("search", url.Values{"namespace": {"shop"}, "key": {"done"}},
				200, append(done, "<code>done</code>")...)
			r.shows("key?id="+id("done"), nil, 200, done...)
			r.shows("key?id="+id("doubtful"), nil, 200, "uncertain", "do=done", "attempt", " UTC")
			r.shows("key?id="+id("flying"), nil, 200, "in_progress", "!do=forget")
			r.shows("key?id="+id("none"), nil, 404)

			r.change("done", "doubtful", 200, "succeeded")
			assert.Equal(t, driver.StateSucceeded, r.state("doubtful"))
			c, err := r.deduper.Claim(t.Context(), "doubtful")
			require.NoError(t, err)
			assert.Equal(t, dedup.Duplicate, c.Outcome)
			r.doubt("doubted")
			r.change("released", "doubted", 200, "released")
			c, err = r.deduper.Claim(t.Context(), "doubted")
			require.NoError(t, err)
			assert.Equal(t, dedup.Acquired, c.Outcome)
			assert.Equal(t, 3, c.Attempt)
			r.change("forget", "done", 200, "absent")
			assert.Contains(t, []driver.State{driver.StateAbsent, driver.StateReleased},
				r.state("done"))
			r.shows("change?do=forget&id="+id("flying"), nil, 409, "in flight")
		})
	}
}

// crowdedRig is a rig in a Redis with many other keys that is slow to list its keys.
func crowdedRig(t *testing.T, others int) (*rig, *redisproxy.Proxy) {
	t.Helper()
	addr := servertest.Private(t, servertest.KindRedis).Addr
	proxy := redisproxy.Start(t, addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Do(t.Context(), "DEBUG", "POPULATE", others, "cache", 8).Err())
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t),
			OnFinding: func(preflight.Finding) {}})
	require.NoError(t, err)
	r := newRig(t, store)
	proxy.SetRules(redisproxy.Rule{Command: "SCAN", Action: redisproxy.DelayReply,
		Delay: 100 * time.Millisecond})
	return r, proxy
}

var further = regexp.MustCompile(`<a rel="next" href="([^"]*)">Look further</a>`)

// TestAmongMany: in a real Redis that is full of other keys a list answers within its time, and its
// further pages lead to all of our keys.
func TestAmongMany(t *testing.T) {
	r, proxy := crowdedRig(t, 100_000)
	began := time.Now()
	page := r.shows("inflight", nil, 200, "Looked at ", " of about 100,00",
		" keys, those of others", " found so far")
	assert.Less(t, time.Since(began), 5*time.Second) // it looks for keys for one second of that
	proxy.SetRules()
	all := page
	for {
		next := further.FindStringSubmatch(page)
		if next == nil {
			break
		}
		page = r.shows("inflight"+html.UnescapeString(next[1]), nil, 200)
		all += page
	}
	assert.Contains(t, page, "Looked at all of about 100,00")
	assert.Contains(t, page, "; 1 found.")
	assert.Equal(t, 1, strings.Count(all, "key?id="+id("flying")))
}

// TestServerIsGone: when Redis has died, the page says so.
func TestServerIsGone(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t), MaxRetries: -1})
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t),
			OnFinding: func(preflight.Finding) {}})
	require.NoError(t, err)
	r := newRig(t, store)
	_ = client.Close()
	for _, target := range []string{"", "inflight", "key?id=" + id("done")} {
		r.shows(target, nil, http.StatusBadGateway, "client is closed")
	}
}
