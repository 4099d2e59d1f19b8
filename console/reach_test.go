package console

import (
	"context"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// crowded is a store in a server with many foreign keys. Each call looks at some keys and takes its
// time. Each call except the first finds a key of ours.
type crowded struct {
	dedup.Store
	total, step int64
	takes       time.Duration
	budgets     []time.Duration
}

func (c *crowded) Keys(context.Context, string, int, []driver.State,
	func(driver.ID, dedup.Record)) (string, int, error) {
	panic("a Scanner is asked by ScanKeys")
}

func (c *crowded) ScanKeys(ctx context.Context, cursor string, _ int, budget time.Duration,
	states []driver.State, each func(driver.ID, dedup.Record)) (string, int64, int64, int, error) {
	c.budgets = append(c.budgets, budget)
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
		return "", 0, 0, 0, context.Cause(ctx)
	}
	at, _ := strconv.ParseInt(cursor, 10, 64)
	if at > 0 {
		each(driver.ID{byte(at / c.step)},
			dedup.Record{State: states[0], Attempt: 1, Remaining: time.Minute})
	}
	if at += c.step; at >= c.total {
		return "", c.total - at + c.step, c.total, 0, nil
	}
	return fmt.Sprint(at), c.step, c.total, 0, nil
}

var link = regexp.MustCompile(`<a rel="next" href="([^"]*)">Look further</a>`)

// A page says how far it has looked. Its link continues from there, and keeps the counts of the
// pages before.
func TestListAmongOthers(t *testing.T) {
	store := &crowded{Store: dedup.Memory(1), total: 2_100_000, step: 400_000, takes: time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Store: store})
		require.NoError(t, err)
		target := "/uncertain"
		for n, says := range []string{
			"Looked at 400,000 of about 2,100,000 keys, those of others in the same server among them; 0 found so far.",
			"Looked at 800,000 of about 2,100,000 keys, those of others in the same server among them; 1 found so far. 1 of them on this page.",
			"Looked at 1,200,000 of about 2,100,000 keys, those of others in the same server among them; 2 found so far. 1 of them on this page.",
			"Looked at 1,600,000", "Looked at 2,000,000",
			"Looked at all of about 2,100,000 keys, those of others in the same server among them; 5 found. 1 of them on this page.",
		} {
			w, began := httptest.NewRecorder(), time.Now()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
			assert.Equal(t, listTime, time.Since(began))
			page := compare(t, target, w, 200)
			require.Contains(t, text(page), says, n)
			next := link.FindStringSubmatch(page)
			require.Equal(t, n == 5, next == nil, "page %d: a link further: %v", n, next)
			if next != nil {
				target = "/uncertain" + html.UnescapeString(next[1])
				compare(t, target, w, 200, "<code>onceward uncertain</code>",
					map[bool]string{true: "!key?id=",
						false: `key?id=` + hex.EncodeToString([]byte{byte(n)})}[n == 0])
			}
		}
	})
	for _, budget := range store.budgets {
		assert.Positive(t, budget)
		assert.LessOrEqual(t, budget, listTime)
	}
}

// A page makes calls until its time is over. An overview has less time.
func TestListTime(t *testing.T) {
	for target, want := range map[string]struct {
		timeout, took time.Duration
		says          string
	}{
		"/inflight": {0, listTime,
			"Looked at 4 of about 1,000,000 keys, those of others in the same server among them; 3 found so far."},
		"/inflight?small=1": {time.Second, 500 * time.Millisecond, "Looked at 2 of about"},
		"/": {0, standingTime,
			"? others in flight not counted to the end: 1 of about 1,000,000 keys of the server were looked at"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Options{Store: &crowded{Store: dedup.Memory(1), total: 1_000_000,
				step: 1, takes: 250 * time.Millisecond}, Timeout: want.timeout})
			require.NoError(t, err)
			w, began := httptest.NewRecorder(), time.Now()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
			assert.Equal(t, want.took, time.Since(began))
			assert.Contains(t, text(compare(t, target, w, 200)), want.says, target)
		})
	}
}

// indexed has an index of its uncertain keys and of those past their point of no return. It looks
// through all names for other keys.
type indexed struct{ crowded }

func (s *indexed) ScanKeys(ctx context.Context, cursor string, limit int, budget time.Duration,
	states []driver.State, each func(driver.ID, dedup.Record)) (next string, looked, total int64,
	foreign int, err error) {
	if len(states) == 1 && states[0] == driver.StateUncertain {
		each(driver.ID{1}, dedup.Record{State: driver.StateUncertain, Attempt: 1})
		return "", 1, 1, 0, nil
	}
	// a SCAN also finds a key of the index
	each(driver.ID{0x22}, dedup.Record{State: driver.StateInProgress, Attempt: 1,
		Irreversible: true})
	return s.crowded.ScanKeys(ctx, cursor, limit, budget, states, each)
}

// IrreversibleKeys returns two pages.
func (s *indexed) IrreversibleKeys(_ context.Context, cursor string, _ int, states []driver.State,
	each func(driver.ID, dedup.Record)) (next string, foreign int, err error) {
	id := driver.ID{0x21}
	if next = "second"; cursor == "second" {
		id, next = driver.ID{0x22}, ""
	}
	each(id, dedup.Record{State: states[0], Attempt: 1, Irreversible: true})
	return next, 0, nil
}

// Keys of an index are counted exactly and only once, apart from keys that a SCAN has to find.
func TestIndexedAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Store: &indexed{crowded{Store: dedup.Memory(1), total: 1_000_000,
			step: 1, takes: 250 * time.Millisecond}}})
		require.NoError(t, err)
		get := func(target string) (page, plain string) {
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
			page = compare(t, target, w, 200)
			return page, text(page)
		}
		_, plain := get("/")
		assert.Contains(t, plain, " 1 uncertain")
		assert.Contains(t, plain, " 2 past the point of no return")
		assert.Contains(t, plain, " ? others in flight not counted to the end: 1 of about")
		page, plain := get("/inflight")
		assert.Contains(t, plain, "Past their point of no return 2 keys. Each becomes")
		assert.Contains(t, plain, "3 found so far.")
		assert.Equal(t, 5, strings.Count(page, "key?id="))
		next := link.FindStringSubmatch(page)
		require.NotNil(t, next)
		page, plain = get("/inflight" + html.UnescapeString(next[1]))
		assert.NotContains(t, plain, "Past their point")
		assert.NotContains(t, page, "key?id=2")
	})
}

// When a client has gone, its page stops looking.
func TestListCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Store: &crowded{Store: dedup.Memory(1), total: 10, step: 1,
			takes: time.Hour}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		w, began := httptest.NewRecorder(), time.Now()
		c.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/inflight", nil))
		compare(t, "cancelled", w, 503)
		assert.Equal(t, time.Millisecond, time.Since(began))
	})
}

// The counts in a link are only shown to people. Forged counts are ignored and do no harm.
func TestListForgedCounts(t *testing.T) {
	for query, says := range map[string]string{
		"cursor=1&looked=x&found=-3":                                    "Looked at 1 of about 3 keys, those of others in the same server among them; 1 found so far.",
		"cursor=1&looked=9223372036854775807&found=9223372036854775807": "Looked at 1 of about 3 keys, those of others in the same server among them; 1 found so far.",
		"cursor=1&looked=77&found=2":                                    "Looked at 3 of about 3 keys, those of others in the same server among them; 3 found so far.",
		"looked=2&found=7":                                              "Looked at 1 of about 3 keys, those of others in the same server among them; 0 found so far.",
		"cursor=1&looked=<b>&found=%22>":                                "1 found so far.",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Options{Store: &crowded{Store: dedup.Memory(1), total: 3, step: 1,
				takes: time.Second}})
			require.NoError(t, err)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/inflight?"+query, nil))
			assert.Contains(t, text(compare(t, query, w, 200)), says)
		})
	}
}

// The server does not say how many keys it has.
func TestListOfUnknownSize(t *testing.T) {
	for step, says := range map[int64]string{1: "Looked at 1 keys, those",
		9: "There are none."} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Options{Store: &silent{crowded{Store: dedup.Memory(1), total: 5,
				step: step, takes: time.Second}}})
			require.NoError(t, err)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/inflight", nil))
			assert.Contains(t, text(compare(t, "silent", w, 200)), says)
		})
	}
}

type silent struct{ crowded }

func (s *silent) ScanKeys(ctx context.Context, cursor string, limit int, budget time.Duration,
	states []driver.State, each func(driver.ID, dedup.Record)) (string, int64, int64, int, error) {
	next, looked, _, foreign, err := s.crowded.ScanKeys(ctx, cursor, limit, budget, states, each)
	return next, looked, 0, foreign, err
}
