package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func TestPages(t *testing.T) {
	r := newRig(t, Options{Name: "shop & co", Window: testWindow})
	_, err := r.deduper.Claim(t.Context(), "done")
	require.NoError(t, err)
	writes := r.store.written()
	for _, test := range []struct {
		target string
		status int
		parts  []string
	}{
		{"/", 200, []string{"shop &amp; co", "<svg", "Claims, by outcome", "producer retry",
			"!http-equiv", "Read only", "1</span> uncertain"}},
		{"/?source=shop", 200, []string{"The last hour of shop"}},
		{"/?source=nobody", 200, []string{"!nobody"}},
		{"/?refresh=10", 200, []string{`<meta http-equiv="refresh" content="10">`}},
		{"/?refresh=1", 200, []string{"!http-equiv=\"refresh\""}},
		{"/inflight", 200, []string{hexOf("flying"), "!" + hexOf("doubtful"), "!" + hexOf("done"),
			"offset 77", "1 key.", " left"}},
		{"/uncertain", 200, []string{hexOf("doubtful"), "!" + hexOf("flying"), "1 key."}},
		{"/search", 200, []string{`method="post"`, `name="namespace"`}},
		{"/key?id=" + hexOf("done"), 200,
			[]string{"succeeded", "20 bytes", "not shown here", "!secret",
				"!" + `<code>done</code>`, "!href=\"change"}},
		{"/key?id=" + hexOf("failed"), 200, []string{"failed", "bytes", "!unexpected EOF"}},
		{"/key?id=" + hexOf("flying"), 200,
			[]string{"in_progress", "partition 3, offset 77, generation 5", "left"}},
		{"/key?id=" + hexOf("doubtful"), 200,
			[]string{"uncertain", "onceward resolve --id " + hexOf("doubtful"), "!href=\"change"}},
		{"/key?id=" + hexOf("never"), 404, []string{"There is no record"}},
		{"/key?id=12", 400, []string{"32 hex digits"}},
		{"/key", 400, []string{"32 hex digits"}},
		{"/none", 404, []string{"no such page"}},
		{"/a/b", 404, nil},
		{"//", 404, nil},
		{"/change?do=done&id=" + hexOf("doubtful"), 403, []string{"read only"}},
	} {
		page := r.shows(test.target, test.status, test.parts...)
		assert.NotContains(t, page, "<script", test.target)
		assert.NotContains(t, page, "style=\"", test.target)
		for _, landmark := range []string{"<header>", "<nav ", "<main ", "<footer>",
			`<html lang="en">`, "<h1>"} {
			assert.Contains(t, page, landmark, test.target)
		}
		assert.Equal(t, 1, strings.Count(page, "<h1>"), test.target)
		assert.NotContains(t, page, `<th>`, "%s: a header cell without scope", test.target)
	}
	w := r.do(http.MethodGet, "/style.css", nil)
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Header().Get("Content-Type"), "text/css")
	assert.Equal(t, 200, r.do(http.MethodHead, "/", nil).Code)
	for _, method := range []string{"POST", "PUT", "DELETE", "G", "GET POST", "ET"} {
		req := httptest.NewRequest(http.MethodGet, "/inflight", nil)
		req.Method = method
		w := httptest.NewRecorder()
		r.console.ServeHTTP(w, req)
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
	}
	assert.Equal(t, 0, r.store.written()-writes)
}

func TestHeaders(t *testing.T) {
	r := newRig(t, Options{})
	for _, target := range []string{"/", "/inflight", "/search", "/none", "/key?id=1", "/change"} {
		h := r.do(http.MethodGet, target, nil).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff",
			"Cache-Control": "no-store", "Referrer-Policy": "same-origin",
		} {
			assert.Equal(t, want, h.Get(name))
		}
	}
}

func TestSearch(t *testing.T) {
	r := newRig(t, Options{Namespace: "shop"})
	r.shows("/search", 200, `name="namespace" value="shop"`)
	for name, test := range map[string]struct {
		form   url.Values
		status int
		parts  []string
	}{
		"a key": {url.Values{"namespace": {"shop"}, "key": {"done"}},
			200, []string{"<code>done</code>", "succeeded", hexOf("done")}},
		"an id": {url.Values{"id": {" " + hexOf("done") + " "}}, 200,
			[]string{"succeeded", "!<code>done</code>"}},
		"no such key": {url.Values{"namespace": {"shop"}, "key": {"none"}},
			404, []string{"There is no record"}},
		"another scope": {url.Values{"namespace": {"shop"}, "key": {"done"}, "scope": {"x"}},
			404, nil},
		"no key": {url.Values{"namespace": {"shop"}}, 400,
			[]string{"The key is empty.", `role="alert"`, `aria-invalid="true"`}},
		"no namespace": {url.Values{"key": {"a"}}, 400, []string{"The namespace is empty."}},
		"no id":        {url.Values{"id": {"xyz"}}, 400, []string{"32 hex digits"}},
		"markup": {url.Values{"namespace": {`"><script>`}, "key": {"a"}},
			400, []string{"!\"><script>"}},
		"markup as key": {url.Values{"namespace": {"shop"}, "key": {"<script>alert(1)</script>"}},
			404, []string{"!<script>", "&lt;script&gt;"}},
		"key not UTF-8": {url.Values{"namespace": {"shop"}, "key": {"\xff"}},
			400, []string{"not valid UTF-8"}},
		"a long body": {url.Values{"namespace": {"shop"}, "key": {strings.Repeat("a", 20<<10)}},
			400, []string{"could not be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, name, r.do(http.MethodPost, "/search", test.form), test.status,
				test.parts...)
		})
	}
	w := r.do(http.MethodPost, "/search", url.Values{"namespace": {"shop"}, "key": {"done"}},
		func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") })
	compare(t, "from another site", w, 403, "another site", "!succeeded")
}

// Any text from outside is shown as text, and not as HTML.
func TestEscapes(t *testing.T) {
	const evil = `"'><script>alert(1)</script><img src=x onerror=alert(1)>`
	r := newRig(t, Options{
		Name: evil[:56], ShowResult: func(_ driver.ID, b []byte) string { return string(b) + evil },
		AllowChanges: true, Authorize: func(*http.Request) (string, error) { return evil, nil },
	})
	_, err := r.console.Observer(evil[:56], time.Hour)
	require.NoError(t, err)
	for _, target := range []string{
		"/", "/?source=" + url.QueryEscape(evil[:56]), "/inflight", "/uncertain",
		"/inflight?cursor=" + url.QueryEscape(evil), "/key?id=" + hexOf("done"),
		"/key?id=" + hexOf("flying"),
		"/change?do=forget&id=" + hexOf("done"), "/key?id=" + url.QueryEscape(evil),
		"/change?id=" + hexOf("done") + "&do=" + url.QueryEscape(evil),
	} {
		page := r.do(http.MethodGet, target, nil).Body.String()
		for _, raw := range []string{"<script", "<img", "<b>"} {
			assert.NotContains(t, page, raw, target)
		}
	}
	r.shows("/key?id="+hexOf("flying"), 200, "&lt;script&gt;alert(1)")
	r.shows("/key?id="+hexOf("done"), 200, "secret &lt;b&gt;result")
	r.store.fail(errors.New(evil))
	r.shows("/", 502, "!<script", "&lt;script")
	r.shows("/key?id="+hexOf("done"), 502, "!<script", "&lt;script")
}

// A page shows what ShowResult returns, and at most 4 KiB of it.
func TestShowResult(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	show := "last digits 42"
	r := newRig(t, Options{ShowResult: func(id driver.ID, b []byte) string {
		assert.Equal(t, idOf("done"), id)
		assert.Equal(t, "secret <b>result</b>", string(b))
		return show
	}})
	r.shows("/key?id="+hexOf("done"), 200, "last digits 42", "!secret", "!was cut")
	show = "a" + long
	page := r.shows("/key?id="+hexOf("done"), 200, "was cut", "!\uFFFD")
	assert.Equal(t, 2047, strings.Count(page, "ä"))
	show = "\xff<\x00"
	r.shows("/key?id="+hexOf("done"), 200, "\uFFFD&lt;")
}

func TestShowResultThatPanics(t *testing.T) {
	r := newRig(t, Options{ShowResult: func(driver.ID, []byte) string { panic("no text") }})
	r.shows("/key?id="+hexOf("done"), 500, "could not be made", "!secret", "!no text")
	assert.Contains(t, r.log.String(), "no text")
	aborting := newRig(t, Options{ShowResult: func(driver.ID, []byte) string {
		panic(http.ErrAbortHandler)
	}})
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		aborting.do(http.MethodGet, "/key?id="+hexOf("done"), nil)
	})
}

// If the store fails, the page shows the cause. It does not panic, and shows no zeros.
func TestStoreFails(t *testing.T) {
	r := newRig(t, Options{AllowChanges: true, ShowError: func(err error) string {
		return strings.ReplaceAll(err.Error(), "password", "***")
	}})
	form := r.question(doForget, "done")
	for _, test := range []struct {
		err    error
		status int
		part   string
	}{
		{errors.New("connection refused by password"), 502, "connection refused by ***"},
		{fmt.Errorf("too slow: %w", context.DeadlineExceeded), 503, "too slow"},
	} {
		r.store.fail(test.err)
		for _, target := range []string{"/", "/inflight", "/uncertain", "/key?id=" + hexOf("done"),
			"/change?do=forget&id=" + hexOf("done")} {
			r.shows(target, test.status, test.part, "!password")
		}
		compare(t, "search", r.do(http.MethodPost, "/search",
			url.Values{"namespace": {"shop"}, "key": {"done"}}), test.status, test.part)
		before := r.store.written()
		compare(t, "forget", r.do(http.MethodPost, "/change", form), test.status, test.part)
		assert.Equal(t, before, r.store.written(), "written without a look")
	}
}

// A store that hangs is given up after Timeout.
func TestTimeout(t *testing.T) {
	r := newRig(t, Options{Timeout: time.Millisecond})
	r.console.options.Store = &hanging{r.store}
	r.shows("/key?id="+hexOf("done"), 503, "It had 1ms")
}

type hanging struct{ dedup.Store }

func (*hanging) Lookup(ctx context.Context, _ []driver.ID) []driver.Answer {
	<-ctx.Done()
	return []driver.Answer{{Err: context.Cause(ctx)}}
}

func TestStoreThatCannotList(t *testing.T) {
	c, err := New(Options{Store: dedup.Memory(10)})
	require.NoError(t, err)
	for _, target := range []string{"/", "/inflight", "/uncertain"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		compare(t, target, w, 200, "cannot list")
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	compare(t, "an overview without events", w, 200, "No Deduper tells this console", "!<svg")
}

// A list shows ListLimit rows, counts all, and shows more on request.
func TestListOfMany(t *testing.T) {
	r := newRig(t, Options{ListLimit: 10})
	for i := range 25 {
		r.end(fmt.Sprint("flying", i), func(*dedup.Claim) error { return nil })
	}
	page := r.shows("/inflight", 200, "26 keys; the first 10 are listed.", "?rows=1000")
	assert.Equal(t, 10, strings.Count(page, "key?id="))
	page = r.shows("/inflight?rows=1000", 200, "26 keys.", "!are listed", "!?rows")
	assert.Equal(t, 26, strings.Count(page, "key?id="))
	r.store.foreign = 3
	r.shows("/inflight", 200, "3 values could not be read")
}

// endless is a store whose pages are empty and never the last.
type endless struct {
	dedup.Store
	calls int
}

func (e *endless) Keys(context.Context, string, int, []driver.State,
	func(driver.ID, dedup.Record)) (string, int, error) {
	e.calls++
	return "more", 0, nil
}

func TestListIsBounded(t *testing.T) {
	e := &endless{Store: dedup.Memory(10)}
	c, err := New(Options{Store: e})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/inflight", nil))
	compare(t, "endless", w, 200, "None in the part", `href="?cursor=more"`,
		"<code>onceward inflight</code>")
	assert.Equal(t, maxCalls, e.calls)
}

// Below a prefix every link and form works, and the cookie is only for that prefix.
func TestPrefix(t *testing.T) {
	r := newRig(t, Options{AllowChanges: true, Window: testWindow})
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", r.console))
	mux.Handle("/ops/console", http.StripPrefix("/ops/console", r.console))
	server := httptest.NewServer(mux)
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := server.Client()
	client.Jar = jar
	base := server.URL + "/ops/console/"
	get := func(target string) string {
		t.Helper()
		u, err := url.Parse(base)
		require.NoError(t, err)
		u, err = u.Parse(target)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(u.String(), base), "out of the console: %v", u)
		response, err := client.Get(u.String())
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		page, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, target)
		return string(page)
	}
	for _, from := range []string{"./", "inflight", "uncertain", "search",
		"key?id=" + hexOf("doubtful")} {
		for _, link := range strings.Split(get(from), `href="`)[1:] {
			if link = link[:strings.IndexByte(link, '"')]; !strings.HasPrefix(link, "#") {
				get(strings.ReplaceAll(link, "&amp;", "&"))
			}
		}
	}
	page := get("change?do=done&id=" + hexOf("doubtful"))
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], m[2])
	}
	response, err := client.PostForm(base+"change", form)
	require.NoError(t, err)
	_ = response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, driver.StateSucceeded, r.state("doubtful"))
	root, _ := url.Parse(server.URL + "/ops/")
	assert.Empty(t, jar.Cookies(root), "the cookie is sent outside of the console")
	response, err = client.Get(server.URL + "/ops/console?x=1")
	require.NoError(t, err)
	_ = response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, "/ops/console/", response.Request.URL.Path)
}

func TestOptions(t *testing.T) {
	store := dedup.Memory(1)
	for field, o := range map[string]Options{
		"Store":     {},
		"Name":      {Store: store, Name: strings.Repeat("a", 65)},
		"Window":    {Store: store, Window: -1},
		"Hold":      {Store: store, Hold: -1},
		"Timeout":   {Store: store, Timeout: -1},
		"ListLimit": {Store: store, ListLimit: 1001},
		"Secret":    {Store: store, Secret: []byte("short")},
		"Authorize": {Store: store, Authorize: func(*http.Request) (string, error) {
			return "", nil
		}},
	} {
		_, err := New(o)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, "console.Options."+field, input.Field)
	}
	_, err := New(Options{Store: (*listedStore)(nil)})
	assert.Error(t, err, "a nil pointer is taken for a store")
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "5ms": 5 * time.Millisecond, "1.2s": 1234 * time.Millisecond,
		"10s": 10 * time.Second, "1m30s": 90 * time.Second, "10m": 10 * time.Minute,
		"1h": time.Hour, "1h30m": 90 * time.Minute, "20h": 20 * time.Hour,
		"47h59m": 48*time.Hour - time.Minute, "3d": 72 * time.Hour, "3d5h": 77 * time.Hour,
		"-5m": -5 * time.Minute,
	} {
		assert.Equal(t, want, short(d))
	}
}
