package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func TestChanges(t *testing.T) {
	for _, test := range []struct {
		do, key string
		window  string
		is      driver.State
	}{
		{doDone, "doubtful", "24h", driver.StateSucceeded},
		{doReleased, "doubtful", "", driver.StateReleased},
		{doForget, "done", "", driver.StateAbsent},
		{doForget, "failed", "", driver.StateAbsent},
	} {
		t.Run(test.do+" "+test.key, func(t *testing.T) {
			r := newRig(t, Options{AllowChanges: true,
				Authorize: func(q *http.Request) (string, error) { return "ann", nil }})
			was := r.state(test.key).String()
			form := r.question(test.do, test.key)
			if test.window != "" {
				form.Set("window", test.window)
			}
			require.Equal(t, was, r.state(test.key).String(), "a question has changed the key")
			compare(t, "POST", r.do(http.MethodPost, "/change", form), 200, "it was", was,
				test.is.String())
			assert.Equal(t, test.is, r.state(test.key))
			for _, part := range []string{"console: changed", "who=ann", "do=" + test.do,
				"id=" + hexOf(test.key), "was=" + was, "is=" + test.is.String()} {
				assert.Contains(t, r.log.String(), part)
			}
			before := r.store.written()
			assert.GreaterOrEqual(t, r.do(http.MethodPost, "/change", form).Code, 400,
				"the same form again")
			assert.Equal(t, before, r.store.written())
			if test.is == driver.StateSucceeded {
				rec := r.store.Lookup(t.Context(), []driver.ID{idOf(test.key)})[0].Record
				assert.LessOrEqual(t, rec.Remaining, 24*time.Hour)
				assert.Greater(t, rec.Remaining, 23*time.Hour)
			}
			if test.is == driver.StateReleased {
				c, err := r.deduper.Claim(t.Context(), test.key)
				require.NoError(t, err)
				assert.Equal(t, dedup.Acquired, c.Outcome)
				assert.GreaterOrEqual(t, c.Attempt, 2)
			}
		})
	}
}

// A change must come from a page of ours, in this browser, by this person, recently, and for the
// key's current state. Any other change is refused.
func TestForgeries(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set(name, value) }
	}
	for name, test := range map[string]struct {
		form   func(*rig, url.Values)
		edit   []func(*http.Request)
		status int
		part   string
	}{
		"no token": {form: func(_ *rig, f url.Values) {
			f.Del("token")
		}, status: 403, part: "not given to this browser"},
		"an invented token": {form: func(_ *rig, f url.Values) {
			f.Set("token", strings.Repeat("A", 54))
		}, status: 403, part: "not given to this browser"},
		"no base64": {form: func(_ *rig, f url.Values) {
			f.Set("token", "%%")
		}, status: 403, part: "not given to this browser"},
		"a changed token": {form: func(_ *rig, f url.Values) {
			f.Set("token", "B"+f.Get("token")[1:])
		}, status: 403, part: "not given to this browser"},
		"another session": {form: func(r *rig, _ url.Values) {
			r.cookies[0].Value = strings.Repeat("A", 26)
		}, status: 403, part: "not given to this browser"},
		"no session": {form: func(r *rig, _ url.Values) {
			r.cookies = nil
		}, status: 403, part: "cookies are needed"},
		"a foreign token": {form: func(r *rig, f url.Values) {
			f.Set("token", newRig(r.t, Options{AllowChanges: true}).question(doDone,
				"doubtful").Get("token"))
		}, status: 403, part: "not given to this browser"},
		"of another key": {form: func(r *rig, f url.Values) {
			f.Set("id", hexOf("done"))
		}, status: 403, part: "not given to this browser"},
		"of another change": {form: func(r *rig, f url.Values) {
			f.Set("do", doReleased)
		}, status: 403, part: "not given to this browser"},
		"another state": {form: func(r *rig, f url.Values) {
			f.Set("state", "succeeded")
		}, status: 403, part: "not given to this browser"},
		"another fence": {form: func(r *rig, f url.Values) {
			f.Set("fence", "1")
		}, status: 403, part: "not given to this browser"},
		"cross-site": {edit: []func(*http.Request){header("Sec-Fetch-Site",
			"cross-site")}, status: 403, part: "another site"},
		"same-site, no origin": {edit: []func(*http.Request){header("Sec-Fetch-Site", "same-site")},
			status: 403, part: "another site"},
		"another origin": {edit: []func(*http.Request){func(q *http.Request) {
			q.Header.Del("Sec-Fetch-Site")
			q.Header.Set("Origin", "https://evil.example")
		}}, status: 403, part: "another site"},
		"in the query": {form: func(r *rig, f url.Values) { clear(f) }, status: 400, part: "not an ID"},
		"no window": {form: func(r *rig, f url.Values) {
			f.Del("window")
		}, status: 400, part: "72h or 90m"},
		"window zero": {form: func(r *rig, f url.Values) {
			f.Set("window", "0s")
		}, status: 400, part: "must be positive"},
		"window huge": {form: func(r *rig, f url.Values) {
			f.Set("window", "2000000h")
		}, status: 400, part: "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{AllowChanges: true, Window: testWindow})
			form := r.question(doDone, "doubtful")
			target := "/change?" + form.Encode()
			if form.Get("window") != testWindow.String() {
				form.Set("window", testWindow.String())
			}
			if test.form != nil {
				test.form(r, form)
			}
			before := r.store.written()
			compare(t, "POST", r.do(http.MethodPost, target, form, test.edit...),
				test.status, test.part)
			assert.Equal(t, before, r.store.written())
			assert.Equal(t, driver.StateUncertain, r.state("doubtful"))
			if test.status == 403 {
				assert.Contains(t, r.log.String(), "console: refused")
			}
		})
	}
}

// If the answer to a question comes too late, the question is asked again.
func TestOldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{AllowChanges: true, Window: testWindow})
		form := r.question(doDone, "doubtful")
		form.Set("window", "1h")
		time.Sleep(tokenLife)
		compare(t, "POST", r.do(http.MethodPost, "/change", form), 403, "too long ago")
		assert.Equal(t, driver.StateUncertain, r.state("doubtful"))
	})
}

func TestReadOnly(t *testing.T) {
	open := newRig(t, Options{AllowChanges: true, Window: testWindow,
		Secret: []byte("0123456789abcdef")})
	form := open.question(doForget, "done")
	r := newRig(t, Options{Window: testWindow, Secret: []byte("0123456789abcdef")})
	r.cookies = open.cookies
	before := r.store.written()
	for _, do := range []string{doDone, doReleased, doForget} {
		r.shows("/change?do="+do+"&id="+hexOf("done"), 403, "read only")
	}
	compare(t, "POST", r.do(http.MethodPost, "/change", form), 403, "read only")
	assert.Equal(t, before, r.store.written())
	assert.Equal(t, driver.StateSucceeded, r.state("done"))
	r.shows("/key?id="+hexOf("done"), 200, "!change?do")
}

func TestAuthorize(t *testing.T) {
	who, denied := "ann", error(nil)
	r := newRig(t, Options{AllowChanges: true, Authorize: func(*http.Request) (string, error) {
		return who, denied
	}})
	form := r.question(doForget, "done")
	who = "bob"
	compare(t, "another person", r.do(http.MethodPost, "/change", form), 403,
		"not given to this browser")
	who, denied = "ann", errors.New("on leave since may")
	compare(t, "without the right", r.do(http.MethodPost, "/change", form), 403,
		"You may not", "!leave")
	r.shows("/change?do=forget&id="+hexOf("done"), 403, "You may not", "!leave")
	assert.Contains(t, r.log.String(), "on leave since may")
	assert.Equal(t, driver.StateSucceeded, r.state("done"))
	denied = nil
	compare(t, "with it", r.do(http.MethodPost, "/change", form), 200)
}

func TestWhatDoesNotFit(t *testing.T) {
	r := newRig(t, Options{AllowChanges: true})
	for _, test := range []struct {
		do, key string
		status  int
		part    string
	}{
		{doDone, "done", 409, "not uncertain"},
		{doReleased, "flying", 409, "not uncertain"},
		{doForget, "flying", 409, "in flight"},
		{doForget, "never", 404, "no record"},
		{"explode", "done", 400, "cannot be done"},
	} {
		r.shows("/change?do="+test.do+"&id="+hexOf(test.key), test.status, test.part)
	}
}

// Another process resolves the key between the last look and the write. The new state stays: a
// record, a worker's claim, or a free key with its count of attempts.
func TestSomebodyIsFaster(t *testing.T) {
	for name, test := range map[string]struct {
		faster func(*rig)
		want   driver.State
	}{
		"resolved": {func(r *rig) { finish(r, driver.StateSucceeded) }, driver.StateSucceeded},
		"released": {func(r *rig) { finish(r, driver.StateReleased) }, driver.StateReleased},
		"forgotten": {func(r *rig) {
			r.store.Store.Forget(context.Background(), []driver.ID{idOf("doubtful")}, time.Hour)
		}, driver.StateReleased},
		"released and in use": {func(r *rig) {
			finish(r, driver.StateReleased)
			r.store.Store.Claim(context.Background(),
				[]driver.ClaimRequest{{ID: idOf("doubtful"), Token: driver.Token{9},
					Lease: time.Minute, Hold: time.Hour}})
		}, driver.StateInProgress},
	} {
		for _, do := range []string{doDone, doReleased} {
			t.Run(name+", "+do, func(t *testing.T) {
				r := newRig(t, Options{AllowChanges: true, Window: testWindow})
				form := r.question(do, "doubtful")
				form.Set("window", "1h")
				attempt := 0
				r.store.before = func(*driver.ID) {
					test.faster(r)
					attempt = r.store.Store.Lookup(context.Background(),
						[]driver.ID{idOf("doubtful")})[0].Record.Attempt
				}
				compare(t, "POST", r.do(http.MethodPost, "/change", form), 409, "changed meanwhile")
				rec := r.store.Store.Lookup(t.Context(), []driver.ID{idOf("doubtful")})[0].Record
				assert.Equal(t, test.want, rec.State)
				assert.Equal(t, attempt, rec.Attempt)
			})
		}
	}
}

// finish ends an uncertain key as a resolver does.
func finish(r *rig, state driver.State) {
	id := idOf("doubtful")
	a := r.store.Store.Claim(context.Background(),
		[]driver.ClaimRequest{{ID: id, Token: driver.Token{8}, Lease: time.Minute, Hold: time.Hour,
			TakeUncertain: true}})[0]
	c := driver.Finish{ID: id, Token: driver.Token{8}, Fence: a.Record.Fence,
		Attempt: a.Record.Attempt, Hold: time.Hour, Window: time.Hour, State: state,
		NotStarted: state == driver.StateReleased}
	b := r.store.Store.Finish(context.Background(), []driver.Finish{c})[0]
	assert.NoError(r.t, b.Err)
	assert.True(r.t, b.Written)
}

// The browser leaves before the answer. A change that has begun is completed.
func TestBrowserLeaves(t *testing.T) {
	r := newRig(t, Options{AllowChanges: true, Window: testWindow})
	form := r.question(doDone, "doubtful")
	form.Set("window", "1h")
	ctx, cancel := context.WithCancel(t.Context())
	r.store.before = func(*driver.ID) { cancel() }
	r.do(http.MethodPost, "/change", form, func(q *http.Request) { *q = *q.WithContext(ctx) })
	require.Error(t, ctx.Err())
	assert.Equal(t, driver.StateSucceeded, r.state("doubtful"))
}

func TestCookie(t *testing.T) {
	r := newRig(t, Options{AllowChanges: true, SecureCookie: true})
	r.do(http.MethodGet, "/", nil)
	require.Nil(t, r.cookies, "a page without a form")
	r.question(doForget, "done")
	c := r.cookies[0]
	assert.True(t, c.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.True(t, c.Secure)
	assert.Empty(t, c.Path)
	assert.GreaterOrEqual(t, len(c.Value), 26)
	first := c.Value
	r.question(doForget, "failed")
	assert.Equal(t, first, r.cookies[0].Value, "a second question makes a second session")
}
