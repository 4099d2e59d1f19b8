package keys

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/onceward/onceward/dedup"
)

// List is what -json writes of inflight and uncertain.
type List struct {
	Keys []View `json:"keys"`
	// More tells that -limit has ended it.
	More bool `json:"more"`
	// Foreign counts what this version cannot read.
	Foreign int `json:"foreign"`
}

// collect goes over the store until there are as many as wanted.
func (s *store) collect(ctx context.Context, o *Options) (List, error) {
	state := dedup.StateInProgress
	if o.Command == "uncertain" {
		state = dedup.StateUncertain
	}
	l := List{Keys: []View{}}
	now, err := s.now(ctx)
	if err != nil {
		return l, err
	}
	seen := make(map[dedup.ID]bool) // a SCAN may name a key twice
	for cursor := ""; ; {
		p, err := s.list(ctx, cursor, state)
		if err != nil {
			return l, err
		}
		l.Foreign += p.foreign
		for i := range p.entries {
			e := &p.entries[i]
			if v := s.view(e.id, &e.record, now); !seen[e.id] && (o.Older == 0 || v.ClaimedMS != nil && *v.ClaimedMS >= o.Older.Milliseconds()) {
				l.Keys, seen[e.id] = append(l.Keys, v), true
			}
		}
		if cursor = p.cursor; cursor == "" || len(l.Keys) > o.Limit {
			break
		}
	}
	slices.SortStableFunc(l.Keys, func(a, b View) int { return cmp.Compare(age(&b), age(&a)) })
	if l.More = len(l.Keys) > o.Limit; l.More {
		l.Keys = l.Keys[:o.Limit]
	}
	return l, nil
}

// age sorts; what is not known comes last.
func age(v *View) int64 {
	if v.ClaimedMS == nil {
		return -1
	}
	return *v.ClaimedMS
}

func (s *store) printList(ctx context.Context, o *Options, out io.Writer) error {
	l, err := s.collect(ctx, o)
	if err != nil {
		return err
	}
	if o.JSON {
		return writeJSON(out, l)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(l.Keys) > 0 {
		fmt.Fprint(w, "id\tclaimed\tattempt\tlease\towner\tlabel\n")
	}
	for i := range l.Keys {
		v := &l.Keys[i]
		left := "-"
		if v.LeaseLeftMS != nil {
			left = lease(*v.LeaseLeftMS)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, ago(v.ClaimedMS, "-"), or(v.Attempt, "-"), left, v.owner("-"), text(strconv.Quote(v.Label), false, ""))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s", len(l.Keys), map[string]string{"inflight": "in flight", "uncertain": "uncertain"}[o.Command])
	if l.More {
		fmt.Fprint(out, ", and there are more: raise -limit")
	}
	if l.Foreign > 0 {
		fmt.Fprintf(out, "; %d values that this version cannot read", l.Foreign)
	}
	_, err = fmt.Fprintln(out)
	return err
}
