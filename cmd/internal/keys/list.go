package keys

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/dedup/driver"
)

// List is what --json writes of inflight and uncertain.
type List struct {
	Keys []View `json:"keys"`
	// Complete tells that these are all: nothing was interrupted, has failed, or was left out by
	// --limit.
	Complete bool `json:"complete"`
	// More tells that --limit has ended it.
	More bool `json:"more"`
	// Looked is about how many keys were looked at, those of others in the same Redis among them,
	// and Total how many there are. Both are null with SQL, where an index knows, and Total where
	// Redis does not say it.
	Looked *int64 `json:"looked_at"`
	Total  *int64 `json:"of_about"`
	// Foreign counts what this version cannot read.
	Foreign int `json:"foreign"`
}

// pageTime is how long one page of a list may take: so often a person sees how far it is.
const pageTime = 200 * time.Millisecond

// collect goes over the store until there are as many as wanted. With an error comes what was found
// until then; without a page before it, nothing.
func (s *store) collect(ctx context.Context, o *Options, errOut io.Writer) (_ *List, err error) {
	state := driver.StateInProgress
	if o.Command == "uncertain" {
		state = driver.StateUncertain
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	var l *List
	var meter *progress.Meter
	defer func() { meter.Stop() }()
	seen := make(map[driver.ID]bool) // a SCAN may name a key twice
	for cursor := ""; ; {
		var p page
		if p, err = s.list(ctx, cursor, state); err != nil {
			break
		}
		if l == nil {
			l = &List{Keys: []View{}}
			meter = progress.Start(errOut, "looking", p.total)
		}
		meter.Add(p.looked)
		l.count(&p)
		for i := range p.entries {
			e := &p.entries[i]
			if v := s.view(e.id, &e.record, now); !seen[e.id] &&
				(o.Older == 0 || v.ClaimedMS != nil && *v.ClaimedMS >= o.Older.Milliseconds()) {
				l.Keys, seen[e.id] = append(l.Keys, v), true
			}
		}
		if cursor = p.cursor; cursor == "" || len(l.Keys) > o.Limit {
			break
		}
	}
	if l == nil {
		return nil, err
	}
	slices.SortStableFunc(l.Keys, func(a, b View) int { return cmp.Compare(age(&b), age(&a)) })
	if l.More = len(l.Keys) > o.Limit; l.More {
		l.Keys = l.Keys[:o.Limit]
	}
	l.Complete = err == nil && !l.More
	return l, err
}

// count adds how far a page has looked.
func (l *List) count(p *page) {
	l.Foreign += p.foreign
	if !p.scanned {
		return
	}
	looked := p.looked
	if l.Looked != nil {
		looked += *l.Looked
	}
	if p.total > 0 {
		l.Total = &p.total
		looked = min(looked, p.total)
	}
	l.Looked = &looked
}

// age sorts; what is not known comes last.
func age(v *View) int64 {
	if v.ClaimedMS == nil {
		return -1
	}
	return *v.ClaimedMS
}

// printList writes what there is, also of a list that has not come to its end: its error is
// returned.
func (s *store) printList(ctx context.Context, o *Options, std *cli.Streams) error {
	l, err := s.collect(ctx, o, std.Err)
	if l == nil {
		return err
	}
	var failed error
	if o.JSON {
		failed = cli.WriteJSON(std.Out, l)
	} else {
		failed = l.print(std, map[string]string{"inflight": "in flight",
			"uncertain": "uncertain"}[o.Command])
	}
	if failed != nil {
		return failed
	}
	return err
}

// print writes a table for people.
func (l *List) print(s *cli.Streams, state string) error {
	rows := make([][]string, 0, len(l.Keys))
	for i := range l.Keys {
		v := &l.Keys[i]
		left := "-"
		if v.LeaseLeftMS != nil {
			left = lease(*v.LeaseLeftMS)
		}
		rows = append(rows, []string{v.ID, ago(v.ClaimedMS, "-"), or(v.Attempt, "-"), left,
			v.owner("-"), text(strconv.Quote(v.Label), false, "")})
	}
	if len(rows) > 0 {
		if err := s.Table([]string{"id", "claimed", "attempt", "lease", "owner", "label"},
			rows); err != nil {
			return err
		}
	}
	return s.Lines(0, l.sum(state))
}

// sum is the last line: how many there are, and whether these are all.
func (l *List) sum(state string) string {
	text := fmt.Sprintf("%d %s", len(l.Keys), state)
	switch {
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
	if l.Foreign > 0 {
		text += fmt.Sprintf("; %d values that this version cannot read", l.Foreign)
	}
	return text
}
