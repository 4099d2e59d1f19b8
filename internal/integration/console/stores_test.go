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
	"testing"
	"time"

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
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func onSQL(t *testing.T, dialect sqladapter.Dialect, db *sql.DB, err error) *sqlstore.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlstore.New(db,
		sqlstore.Options{Dialect: dialect, Table: servertest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	observer, err := c.Observer("shop", window)
	if err != nil {
		t.Fatal(err)
	}
	layout, ok := store.(*redisadapter.Store)
	r := &rig{t: t, store: store, small: ok && layout.Limits().NoResults}
	r.deduper, err = dedup.New(store, dedup.Config{
		Namespace: "shop", Window: window, LeaseTTL: time.Minute, Labels: true,
		SeenOnly: r.small, Observer: observer,
	})
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.deduper.Claim(t.Context(), "done")
	if err != nil {
		t.Fatal(err)
	}
	var result []byte
	if !r.small {
		result = []byte("receipt")
	}
	if err := done.Complete(t.Context(), result); err != nil {
		t.Fatal(err)
	}
	if _, err := r.deduper.Claim(t.Context(), "flying", func(r *dedup.Request) { r.Label = "order 7" },
		func(r *dedup.Request) {
			r.Origin = driver.Origin{Source: "orders", Partition: 3, Offset: 77}
		}); err != nil {
		t.Fatal(err)
	}
	r.doubt("doubtful")
	server := httptest.NewServer(http.StripPrefix("/console", c))
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.url, r.client = server.URL+"/console/", server.Client()
	r.client.Jar = jar
	return r
}

// doubt leaves a key uncertain: its attempt fails after MarkIrreversible.
func (r *rig) doubt(key string) {
	r.t.Helper()
	run := func(ctx context.Context) ([]byte, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return nil, err
		}
		return nil, errors.New("the downstream did not answer")
	}
	if _, err := dedup.Do(r.t.Context(), r.deduper, key, run); err == nil ||
		r.state(key) != driver.StateUncertain {
		r.t.Fatalf("%q is %v after %v", key, r.state(key), err)
	}
}

func (r *rig) state(key string) driver.State {
	r.t.Helper()
	rec, err := r.deduper.Lookup(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
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
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		r.t.Errorf("%s: status %d, want %d; %v\n%s", target, response.StatusCode, status, err, page)
	}
	for _, p := range parts {
		p, not := strings.CutPrefix(p, "!")
		if strings.Contains(string(page), p) == not {
			r.t.Errorf("%s: %q is there: %v, in\n%s", target, p, not, page)
		}
	}
	return string(page)
}

var hidden = regexp.MustCompile(`name="(\w+)" value="([^"]*)"`)

// change asks for a change, and confirms it.
func (r *rig) change(do, key string, status int, parts ...string) {
	r.t.Helper()
	form := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(r.shows("change?do="+do+"&id="+id(key),
		nil, http.StatusOK), -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	r.shows("change", form, status, parts...)
}

// TestStores: for every kind of store the pages show the data that it keeps, and change it.
func TestStores(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, open(t))
			if _, err := r.deduper.Claim(t.Context(), "done"); err != nil { // a duplicate
				t.Fatal(err)
			}
			r.shows("", nil, 200, `1</span> in flight`, `1</span> uncertain`, "Claims, by outcome")
			r.shows("inflight", nil, 200, id("flying"), "!"+id("doubtful"),
				"partition 3, offset 77", "order 7", "s left")
			r.shows("uncertain", nil, 200, id("doubtful"), "!"+id("flying"))
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
			if s := r.state("doubtful"); s != driver.StateSucceeded {
				t.Errorf("resolved as done: %v", s)
			}
			if c, err := r.deduper.Claim(t.Context(), "doubtful"); err != nil ||
				c.Outcome != dedup.Duplicate {
				t.Errorf("a claim of the key that was resolved as done: %+v, %v", c, err)
			}
			r.doubt("doubted")
			r.change("released", "doubted", 200, "released")
			if c, err := r.deduper.Claim(t.Context(), "doubted"); err != nil ||
				c.Outcome != dedup.Acquired || c.Attempt != 3 {
				t.Errorf("a claim of the key that was resolved as released: %+v, %v", c, err)
			}
			r.change("forget", "done", 200, "absent")
			if s := r.state("done"); s != driver.StateAbsent && s != driver.StateReleased {
				t.Errorf("forgotten: %v", s)
			}
			r.shows("change?do=forget&id="+id("flying"), nil, 409, "in flight")
		})
	}
}

// crowdedRig is a rig in a Redis with many other keys that is slow to list its keys.
func crowdedRig(t *testing.T) (*rig, *redisproxy.Proxy) {
	t.Helper()
	addr := servertest.Private(t, servertest.KindRedis).Addr
	proxy := redisproxy.Start(t, addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Do(t.Context(), "DEBUG", "POPULATE", 100_000, "cache", 8).Err(); err != nil {
		t.Fatal(err)
	}
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t),
			OnFinding: func(preflight.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, store)
	proxy.SetRules(redisproxy.Rule{Command: "SCAN", Action: redisproxy.DelayReply,
		Delay: 100 * time.Millisecond})
	return r, proxy
}

var further = regexp.MustCompile(`<a rel="next" href="([^"]*)">Look further</a>`)

// TestAmongMany: in a real Redis that is full of other keys a list answers within its time, and its
// further pages lead to all of our keys.
func TestAmongMany(t *testing.T) {
	r, proxy := crowdedRig(t)
	began := time.Now()
	page := r.shows("inflight", nil, 200, "Looked at ", " of about 100,00",
		" keys, those of others", " found so far")
	if took := time.Since(began); took > 5*time.Second { // it looks for keys for one second of that
		t.Errorf("it took %v", took)
	}
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
	if !strings.Contains(page, "Looked at all of about 100,00") ||
		!strings.Contains(page, "; 1 found.") {
		t.Errorf("the last page is\n%s", page)
	}
	if n := strings.Count(all, "key?id="+id("flying")); n != 1 {
		t.Errorf("the key is listed %d times", n)
	}
}

// TestServerIsGone: when Redis has died, the page says so.
func TestServerIsGone(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t), MaxRetries: -1})
	store, err := redisadapter.New(t.Context(), client,
		redisadapter.Options{Prefix: servertest.Prefix(t),
			OnFinding: func(preflight.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, store)
	_ = client.Close()
	for _, target := range []string{"", "inflight", "key?id=" + id("done")} {
		r.shows(target, nil, http.StatusBadGateway, "client is closed")
	}
}
