package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// listing is the page of a list.
type listing struct {
	Uncertain  bool
	Command    string // command that lists all of them
	CannotList bool
	Filter     filter
	First      bool // no earlier page has looked
	// Marked are keys in flight past their point of no return. Keys are the others in flight, or
	// the uncertain ones.
	Marked, Keys keyList
	// Found is how many keys this page and the pages before it have found.
	Found int64
	// Further links to the next part if there may be more keys, and Rows to more rows of this part.
	// Resolve links to the question about all keys that match the filter; the template appends the
	// name of the change.
	Further, Rows, Resolve string
	Journal                []entry
}

// listed is a key in a list.
type listed struct {
	ID string
	// Name is what people recognize a key by: its label, or where its message came from.
	Name    string
	Labeled bool
	Origin  string
	Age     string // since the newest claim
	Share   int    // of the age of the oldest, in percent, for a bar
	Attempt int
	Left    string // of the lease, or until the store forgets the key
	Lapsed  bool
	at      time.Time
	record  dedup.Record
}

// Short is enough of the ID to distinguish keys, and to search for one.
func (l *listed) Short() string { return l.ID[:8] }

func (c *Console) list(w http.ResponseWriter, r *http.Request, state driver.State) error {
	q := r.URL.Query()
	l := listing{Command: "inflight", Uncertain: state == driver.StateUncertain}
	title := "In flight"
	if l.Uncertain {
		title, l.Command = "Uncertain", "uncertain"
	}
	lister, ok := c.options.Store.(Lister)
	if !ok {
		l.CannotList = true
		return c.write(w, r, http.StatusOK, "list", title, &l)
	}
	var err error
	if l.Filter, err = filterOf(q); err != nil {
		return err
	}
	at := reach{Next: q.Get("cursor")}
	if l.First = at.Next == ""; !l.First {
		at.Passed, l.Found = countOf(q.Get("looked")), countOf(q.Get("found"))
	}
	if l.Uncertain {
		l.Keys, err = c.uncertainKeys(r.Context(), lister, at, listTime, &l.Filter)
	} else {
		l.Marked, l.Keys, err = c.inFlight(r.Context(), lister, at, listTime, &l.Filter)
	}
	if err != nil {
		return err
	}
	l.Found += int64(len(l.Keys.Keys))
	if l.Uncertain {
		l.Journal = c.journal.newest("")
		l.Resolve = "bulk?" + l.Filter.query(nil) + "&do="
	}
	c.cut(&l, q.Get("rows") != "")
	return c.write(w, r, http.StatusOK, "list", title, &l)
}

// cut keeps as many rows as are wanted, and makes the links to the rest.
func (c *Console) cut(l *listing, more bool) {
	rows := c.options.ListLimit
	if more {
		rows = maxListLimit
	}
	if longest := max(len(l.Keys.Keys), len(l.Marked.Keys)); longest > rows && !more {
		l.Rows = "?" + l.Filter.query(url.Values{"rows": {strconv.Itoa(maxListLimit)}})
	}
	for _, f := range []*keyList{&l.Keys, &l.Marked} {
		f.Matching = len(f.Keys)
		// No other address shows this page of a scan again, so the page shows all keys that it has
		// found.
		if !f.Scanned || f.Next == "" {
			f.Keys = f.Keys[:min(len(f.Keys), rows)]
		}
	}
	if l.Keys.Next != "" {
		further := url.Values{"cursor": {l.Keys.Next}}
		if l.Keys.Scanned {
			further.Set("looked", strconv.FormatInt(l.Keys.Passed, 10))
			further.Set("found", strconv.FormatInt(l.Found, 10))
		}
		l.Further = "?" + l.Filter.query(further)
	}
}

// uncertainKeys finds the uncertain keys. All stores have an index of the uncertain keys, including
// the store in Redis.
func (c *Console) uncertainKeys(ctx context.Context, store Lister, at reach, budget time.Duration,
	f *filter) (keyList, error) {
	return c.collect(ctx, store, at, wanted{states: []driver.State{driver.StateUncertain},
		limit: maxListLimit, enough: maxFound, budget: budget}, f)
}

// inFlight finds the keys in flight: those past their point of no return, which are all in an
// index, and the others, for which a Scanner has to look.
func (c *Console) inFlight(ctx context.Context, store Lister, at reach, budget time.Duration,
	f *filter) (marked, others keyList, err error) {
	states := []driver.State{driver.StateInProgress}
	_, indexed := store.(IrreversibleLister)
	want := wanted{states: states, limit: maxListLimit, enough: maxFound, budget: budget}
	if indexed && at.Next == "" {
		want.irreversible = true
		if marked, err = c.collect(ctx, store, reach{}, want, f); err != nil {
			return marked, others, err
		}
		want.irreversible = false
	}
	if _, scans := store.(Scanner); scans {
		want.limit, want.enough = c.options.ListLimit, c.options.ListLimit
	}
	if others, err = c.collect(ctx, store, at, want, f); err != nil {
		return marked, others, err
	}
	apart := others.split()
	if !indexed {
		marked = apart
	}
	return marked, others, nil
}

func listedOf(id driver.ID, r *dedup.Record) listed {
	l := listed{ID: hex.EncodeToString(id[:]), Age: "not known", Attempt: r.Attempt,
		Name: labelOf(r), Labeled: r.Label != "", record: *r, Left: short(r.Remaining)}
	if r.Origin != (driver.Origin{}) {
		l.Origin = place(r)
	}
	if !l.Labeled {
		l.Name = cmp.Or(l.Origin, "no label")
	}
	if at, ok := claimedAt(r.Fence); ok {
		l.at, l.Age = at, short(max(time.Since(at), 0))
	}
	if r.State == driver.StateInProgress {
		l.Left, l.Lapsed = lease(r), r.Remaining <= 0
	}
	return l
}

// labelOf returns a label as it is, or quoted if it has invisible characters.
func labelOf(r *dedup.Record) string {
	if quoted := strconv.Quote(r.Label); quoted != `"`+r.Label+`"` {
		return quoted
	}
	return r.Label
}
