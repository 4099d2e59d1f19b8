package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// List is what --json writes of inflight and uncertain.
type List struct {
	Keys []View `json:"keys"`
	// Complete says that the list has all keys: nothing interrupted it, nothing failed, and --limit
	// left none out.
	Complete bool `json:"complete"`
	// More says that --limit has cut the list.
	More bool `json:"more"`
	// Looked is the approximate number of keys that were looked at, including keys of other
	// programs in the same Redis. Total is the approximate number of all keys. Both are null with
	// SQL, which has an index. Total is null if Redis does not report it.
	Looked *int64 `json:"looked_at"`
	Total  *int64 `json:"of_about"`
	// Exact counts all selected keys that are in an index, which are the uncertain ones and those
	// in flight past their point of no return.
	Exact int `json:"exact"`
	// Foreign counts values that this version cannot read.
	Foreign int `json:"foreign"`
}

// pageTime is how long one page of a list may take: the bar moves after each page.
const pageTime = 200 * time.Millisecond

// pageScan is how many names one page may look at.
const pageScan = 1_000_000

// errEnough ends a sample of the keys.
var errEnough = errors.New("enough was seen")

// collector builds a list.
type collector struct {
	List
	s      *store
	o      *Options
	now    time.Time
	errOut io.Writer
	seen   map[driver.ID]bool // a SCAN may return a key twice
	pages  int
}

// collect goes over the store. An index holds the uncertain keys and those past their point of no
// return; collect lists the oldest of these and counts the rest. It looks for other keys until it
// has as many as wanted, or the time of --for is over. With an error, it returns what it had found
// before, or nil if it has not read a page.
func (s *store) collect(ctx context.Context, o *Options, errOut io.Writer) (*List, error) {
	now, err := s.now(ctx, o)
	if err != nil {
		return nil, err
	}
	c := collector{List: List{Keys: []View{}}, s: s, o: o, now: now, errOut: errOut,
		seen: make(map[driver.ID]bool)}
	inflight := o.Command == "inflight"
	if inflight {
		err = c.run(ctx, true, driver.StateInProgress)
	} else {
		err = c.run(ctx, false, driver.StateUncertain)
	}
	c.Exact = len(c.Keys)
	if inflight && err == nil {
		err = c.sample(ctx)
	}
	if c.pages == 0 {
		return nil, err
	}
	sample := errors.Is(err, errEnough)
	if sample {
		err = nil
	}
	slices.SortStableFunc(c.Keys, func(a, b View) int { return cmp.Compare(b.age(), a.age()) })
	c.More = len(c.Keys) > o.Limit
	c.Keys = c.Keys[:min(len(c.Keys), o.Limit)]
	c.Complete = err == nil && !c.More && !sample
	return &c.List, err
}

// sample looks for keys in flight until the time of --for is over.
func (c *collector) sample(ctx context.Context) error {
	if c.s.Redis == nil || c.o.For == 0 {
		return c.run(ctx, false, driver.StateInProgress)
	}
	looking, cancel := context.WithTimeoutCause(ctx, c.o.For, errEnough)
	defer cancel()
	err := c.run(looking, false, driver.StateInProgress)
	if err != nil && errors.Is(context.Cause(looking), errEnough) {
		return errEnough
	}
	return err
}

// run adds the keys in a state. It reads an index to its end.
func (c *collector) run(ctx context.Context, irreversible bool, state driver.State) error {
	var meter *progress.Meter
	defer func() { meter.Stop() }()
	indexed := irreversible || state == driver.StateUncertain
	for cursor, first := "", true; ; first = false {
		p, err := c.s.list(ctx, cursor, irreversible, state)
		if err != nil {
			return err
		}
		if first {
			meter = progress.Start(c.errOut, "looking", p.Total)
		}
		meter.Add(p.Looked)
		if !irreversible {
			c.count(&p)
		}
		c.pages++
		for i := range p.Entries {
			c.add(&p.Entries[i])
		}
		if cursor = p.Cursor; cursor == "" || !indexed && len(c.Keys) > c.o.Limit {
			return nil
		}
	}
}

// add lists a key, if the flags select it.
func (c *collector) add(e *redisadapter.Entry) {
	v := c.s.view(e.ID, &e.Record, c.now)
	if !c.seen[e.ID] && strings.HasPrefix(e.Record.Label, c.o.Label) &&
		(c.o.Older == 0 || v.age() >= c.o.Older.Milliseconds()) {
		c.seen[e.ID] = true
		c.Keys = append(c.Keys, v)
	}
}

// count adds how many keys a page has looked at.
func (c *collector) count(p *redisadapter.Page) {
	c.Foreign += p.Foreign
	if c.s.Redis == nil {
		return
	}
	looked := p.Looked
	if c.Looked != nil {
		looked += *c.Looked
	}
	if p.Total > 0 {
		c.Total = &p.Total
		looked = min(looked, p.Total)
	}
	c.Looked = &looked
}

// age is the time since the newest claim in milliseconds, or -1 if it is not known.
func (v *View) age() int64 {
	if v.ClaimedMS == nil {
		return -1
	}
	return *v.ClaimedMS
}

// printList writes the list, even if it is not complete. For an incomplete list it returns the
// error that ended the list.
func (s *store) printList(ctx context.Context, o *Options, std *cli.Streams) error {
	l, err := s.collect(ctx, o, std.Err)
	if l == nil {
		return err
	}
	state := "uncertain"
	if o.Command == "inflight" {
		state = "in flight"
	}
	return cmp.Or(o.write(std, l, func() error { return l.print(std, state) }), err)
}

// print writes a table for people.
func (l *List) print(s *cli.Streams, state string) error {
	rows := make([][]string, 0, len(l.Keys))
	for i := range l.Keys {
		v := &l.Keys[i]
		again := "yes"
		if v.Irreversible {
			again = "no"
		}
		rows = append(rows, []string{v.ID, ago(v.ClaimedMS, "-"), or(v.Attempt, "-"),
			lease(v.LeaseLeftMS), again, v.owner("-"), text(strconv.Quote(v.Label), false, "")})
	}
	if len(rows) > 0 {
		if err := s.Table([]string{"id", "claimed", "attempt", "lease", "may run again", "owner",
			"label"}, rows); err != nil {
			return err
		}
	}
	return s.Lines(0, l.sum(state))
}

// sum is the last line. It says how many keys there are, and whether the list is complete.
func (l *List) sum(state string) string {
	text := fmt.Sprintf("%d %s", len(l.Keys), state)
	switch {
	case l.More && state == "uncertain":
		text = fmt.Sprintf("%d %s, and the %d oldest are listed: raise --limit", l.Exact, state,
			len(l.Keys))
	case l.More:
		text += ", and there are more: raise --limit"
	case !l.Complete:
		text += " so far, and THE LIST IS NOT COMPLETE"
		if l.Looked != nil {
			text += fmt.Sprintf(": looked at %d", *l.Looked)
			if l.Total != nil {
				text += fmt.Sprintf(" of about %d", *l.Total)
			}
			text += " keys"
		}
	}
	if state == "in flight" && l.Exact > 0 {
		text += fmt.Sprintf("; past their point of no return exactly %d", l.Exact)
	}
	if l.Foreign > 0 {
		text += fmt.Sprintf("; %d values that this version cannot read", l.Foreign)
	}
	return text
}
