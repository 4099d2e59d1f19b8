package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var tickedBox = regexp.MustCompile(`name="key" value="([^"]*)"[^>]* checked>`)

// bulkForm opens the question about all keys that match filter, and returns its form.
func (r *rig) bulkForm(do, filter string) url.Values {
	r.t.Helper()
	page := r.shows("/bulk?do="+do+"&"+filter, http.StatusOK, "Type <em>"+phrases[do]+"</em>")
	form := url.Values{"do": {do}, "confirm": {phrases[do]}, "window": {"1h"}}
	for _, m := range tickedBox.FindAllStringSubmatch(page, -1) {
		form.Add("key", html.UnescapeString(m[1]))
	}
	return form
}

// bulkRig has uncertain keys of two customers, three of each.
func bulkRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := newRig(t, o)
	for _, customer := range []string{"ann", "bob"} {
		for i := range 3 {
			r.doubt(fmt.Sprint(customer, i), func(q *dedup.Request) {
				q.Label = fmt.Sprintf("order %d of %s", i, customer)
			})
		}
	}
	return r
}

func TestBulk(t *testing.T) {
	for do, is := range map[string]driver.State{doDone: driver.StateSucceeded,
		doReleased: driver.StateReleased} {
		t.Run(do, func(t *testing.T) {
			r := bulkRig(t, Options{AllowChanges: true,
				Authorize: func(*http.Request) (string, error) { return "eve", nil }})
			form := r.bulkForm(do, "text=OF+ann&sort=label")
			require.Len(t, form["key"], 3)
			form["key"] = form["key"][1:] // untick the first: the keys are sorted by label
			compare(t, "POST", r.do(http.MethodPost, "/bulk", form), 200,
				"2 keys were "+words[do].log, "!role=\"alert\"")
			for key, want := range map[string]driver.State{"ann0": driver.StateUncertain,
				"ann1": is, "ann2": is, "bob0": driver.StateUncertain,
				"doubtful": driver.StateUncertain} {
				assert.Equal(t, want, r.state(key), key)
			}
			assert.Equal(t, 2, strings.Count(r.log.String(), "console: changed"))
			assert.Contains(t, r.log.String(), "who=eve do="+do+" id="+hexOf("ann1"))
			r.shows("/uncertain", 200, "Changed here", "order 2 of ann", "eve", words[do].log)
			r.shows("/key?id="+hexOf("ann2"), 200, "Changed here", "eve")
			r.shows("/key?id="+hexOf("bob2"), 200, "!Changed here")
			compare(t, "again", r.do(http.MethodPost, "/bulk", form), 200, "0 keys were",
				"2 were not", "changed meanwhile")
			assert.Equal(t, is, r.state("ann1"))
		})
	}
}

// A form that is incomplete, or not from this console, changes nothing.
func TestBulkRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		form   func(url.Values)
		site   string
		status int
		part   string
	}{
		"nothing typed": {func(f url.Values) { f.Del("confirm") }, "same-origin", 400,
			"Nothing was changed: the text that was typed is not"},
		"the other phrase": {func(f url.Values) { f.Set("confirm", phrases[doDone]) },
			"same-origin", 400, "Nothing was changed"},
		"another change": {func(f url.Values) {
			f.Set("do", doDone)
			f.Set("confirm", phrases[doDone])
		}, "same-origin", 403, "not given to this browser"},
		"forget": {func(f url.Values) {
			f.Set("do", doForget)
			f.Del("confirm")
		}, "same-origin", 400, "cannot be done"},
		"another key": {func(f url.Values) {
			f.Add("key", strings.Replace(f.Get("key"), f.Get("key")[:32], hexOf("doubtful"), 1))
		}, "same-origin", 403, "not given to this browser"},
		"no key":       {func(f url.Values) { f.Del("key") }, "same-origin", 400, "No key was ticked"},
		"another site": {func(url.Values) {}, "cross-site", 403, "another site"},
	} {
		t.Run(name, func(t *testing.T) {
			r := bulkRig(t, Options{AllowChanges: true})
			form := r.bulkForm(doReleased, "text=bob")
			test.form(form)
			before := r.store.written()
			page := compare(t, name, r.do(http.MethodPost, "/bulk", form,
				func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", test.site) }),
				test.status, test.part)
			assert.Equal(t, before, r.store.written())
			if strings.Contains(test.part, "Nothing was changed") { // the question is shown again
				assert.Len(t, tickedBox.FindAllString(page, -1), 3)
			}
		})
	}
	r := bulkRig(t, Options{})
	r.shows("/bulk?do=done", 403, "read only")
	r.shows("/uncertain", 200, "!bulk?", "onceward resolve --all")
	open := bulkRig(t, Options{AllowChanges: true})
	open.shows("/bulk?do=done&older=2h", 400, "no such filter")
	open.shows("/bulk?do=done&text=nobody", 404, "No uncertain key matches")
	open.shows("/bulk?do=forget", 400, "cannot be done")
}

// Keys that change after they were shown keep their new state, and the others are changed. One such
// key was settled, and the next attempt of another one ended uncertain.
func TestBulkLeavesWhatHasMoved(t *testing.T) {
	r := bulkRig(t, Options{AllowChanges: true})
	form := r.bulkForm(doReleased, "text=bob")
	settle := func(do, key string) {
		one := r.bulkForm(do, "text="+hexOf(key)[:8])
		compare(t, key, r.do(http.MethodPost, "/bulk", one), 200, "1 key was")
	}
	settle(doDone, "bob0")
	settle(doReleased, "bob1")
	r.doubt("bob1")
	compare(t, "all", r.do(http.MethodPost, "/bulk", form), 200, "1 key was", "2 were not",
		hexOf("bob0")+"</code></a>: left as it is: it has changed meanwhile",
		hexOf("bob1")+"</code></a>: left as it is: it has changed meanwhile")
	assert.Equal(t, driver.StateSucceeded, r.state("bob0"))
	assert.Equal(t, driver.StateUncertain, r.state("bob1"))
	assert.Equal(t, driver.StateReleased, r.state("bob2"))
}

func TestFilter(t *testing.T) {
	now := time.Now()
	keys := []listed{
		{ID: "aa01", Name: "order 1", Origin: "partition 3, offset 77", Attempt: 1,
			at: now.Add(-time.Minute)},
		{ID: "ab02", Name: "invoice 2", Attempt: 4, at: now.Add(-2 * time.Hour)},
		{ID: "ac03", Name: "Order 3", Attempt: 2},
	}
	for query, want := range map[string]string{
		"":                        "ab02 aa01 ac03",
		"sort=newest":             "aa01 ab02 ac03",
		"sort=attempts":           "ab02 ac03 aa01",
		"sort=label":              "ac03 ab02 aa01",
		"text=order":              "aa01 ac03",
		"text=+OFFSET+77":         "aa01",
		"text=ab":                 "ab02",
		"text=b0":                 "",
		"older=1h":                "ab02",
		"older=1h&text=order":     "",
		"older=1m&sort=newest":    "aa01 ab02",
		"text=order&sort=newest&": "aa01 ac03",
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		f, err := filterOf(q)
		require.NoError(t, err, query)
		var got []listed
		for _, l := range keys {
			if f.matches(&l) {
				got = append(got, l)
			}
		}
		f.sort(got)
		ids := []string{}
		for _, l := range got {
			ids = append(ids, l.ID)
		}
		assert.Equal(t, want, strings.Join(ids, " "), query)
	}
	for _, bad := range []url.Values{{"older": {"1s"}}, {"sort": {"id"}}} {
		_, err := filterOf(bad)
		assert.Error(t, err)
	}
}

// Every link of a filtered list has its filter. A bar compares each age with the oldest.
func TestFilteredList(t *testing.T) {
	r := bulkRig(t, Options{AllowChanges: true, ListLimit: 2})
	page := r.shows("/uncertain?text=bob&sort=label", 200,
		"7 keys, 3 of them match; the first 2 are listed.", "!order 2 of bob",
		`value="label" selected`, `<svg class="age"`, "all that match")
	for _, target := range []string{"?rows=1000&amp;sort=label&amp;text=bob",
		"bulk?sort=label&amp;text=bob&amp;do=done", "?refresh=10&amp;sort=label&amp;text=bob"} {
		assert.Contains(t, page, `href="`+target+`"`)
	}
	r.shows("/uncertain?older=1h", 200, "7 keys, 0 of them match.", "!key?id=", "!bulk?")
	r.shows("/uncertain?older=yes", 400, "no such filter")
}

// The pages show only the newest changes, as many as fit.
func TestJournalIsBounded(t *testing.T) {
	var j journal
	for i := range maxJournal + 5 {
		j.add(&change{who: fmt.Sprint(i)}, "00000000", "done")
	}
	assert.Len(t, j.all, maxJournal)
	newest := j.newest("")
	require.Len(t, newest, maxEntries)
	assert.Equal(t, fmt.Sprint(maxJournal+4), newest[0].Who)
	assert.Empty(t, j.newest("11111111"))
}
