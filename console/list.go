package console

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// listing is a page of keys in a state.
type listing struct {
	State      string
	Command    string // that lists all of them
	Uncertain  bool
	Keys       []listed
	First      bool
	CannotList bool
	reach
	// Found is how many were listed, on this page and those before it.
	Found int64
}

type listed struct {
	ID, Claimed, Attempt, Lease, Owner, Label string
	Lapsed                                    bool
	at                                        time.Time
}

func (c *Console) list(w http.ResponseWriter, r *http.Request, state driver.State) error {
	q := r.URL.Query()
	l := listing{State: state.String(), Command: "inflight",
		Uncertain: state == driver.StateUncertain}
	l.Next = q.Get("cursor")
	if l.First = l.Next == ""; !l.First {
		l.Passed, l.Found = countOf(q.Get("looked")), countOf(q.Get("found"))
	}
	title := "In flight"
	if l.Uncertain {
		title, l.Command = "Uncertain", "uncertain"
	}
	lister, ok := c.options.Store.(Lister)
	if !ok {
		l.CannotList = true
		return c.write(w, r, http.StatusOK, "list", title, l)
	}
	seen := make(map[driver.ID]bool) // a SCAN may name a key twice
	each := func(id driver.ID, rec dedup.Record) {
		if !seen[id] {
			seen[id] = true
			l.Keys = append(l.Keys, listedOf(id, &rec))
		}
	}
	var err error
	l.reach, err = c.goOn(r.Context(), lister, l.reach,
		wanted{[]driver.State{state}, c.options.ListLimit, listTime}, each)
	if err != nil {
		return err
	}
	l.Found += int64(len(l.Keys))
	slices.SortStableFunc(l.Keys, func(a, b listed) int {
		if a.at.IsZero() != b.at.IsZero() { // what is not known comes last
			return cmp.Compare(len(b.Claimed), len(a.Claimed))
		}
		return a.at.Compare(b.at)
	})
	return c.write(w, r, http.StatusOK, "list", title, l)
}

func listedOf(id driver.ID, r *dedup.Record) listed {
	l := listed{ID: hex.EncodeToString(id[:]), Claimed: "-", Attempt: strconv.Itoa(r.Attempt),
		Lease: "-", Owner: owner(r)}
	if at, ok := claimedAt(r.Fence); ok {
		l.at, l.Claimed = at, ago(at)
	}
	if r.State == driver.StateInProgress {
		l.Lease, l.Lapsed = lease(r), r.Remaining <= 0
	}
	if r.Label != "" {
		l.Label = strconv.Quote(r.Label)
	}
	return l
}
