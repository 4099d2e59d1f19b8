package console

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
)

// maxCalls bounds how many pages of the store one page of the console goes over that are empty.
const maxCalls = 20

// listing is a page of keys in a state.
type listing struct {
	State      string
	Uncertain  bool
	Keys       []listed
	Next       string
	First      bool
	Foreign    int
	CannotList bool
}

type listed struct {
	ID, Claimed, Attempt, Lease, Owner, Label string
	Lapsed                                    bool
	at                                        time.Time
}

func (c *Console) list(w http.ResponseWriter, r *http.Request, state dedup.State) error {
	cursor := r.URL.Query().Get("cursor")
	l := listing{State: state.String(), Uncertain: state == dedup.StateUncertain, First: cursor == ""}
	title := "In flight"
	if l.Uncertain {
		title = "Uncertain"
	}
	lister, ok := c.options.Store.(Lister)
	if !ok {
		l.CannotList = true
		return c.write(w, r, http.StatusOK, "list", title, l)
	}
	seen := make(map[dedup.ID]bool) // a SCAN may name a key twice
	l.Next = cursor
	for calls := 0; calls < maxCalls && len(l.Keys) < c.options.ListLimit; calls++ {
		next, foreign, err := lister.Keys(r.Context(), l.Next, c.options.ListLimit, []dedup.State{state}, func(id dedup.ID, rec dedup.Record) {
			if !seen[id] {
				seen[id] = true
				l.Keys = append(l.Keys, listedOf(id, &rec))
			}
		})
		if err != nil {
			return err
		}
		l.Foreign += foreign
		if l.Next = next; next == "" {
			break
		}
	}
	slices.SortStableFunc(l.Keys, func(a, b listed) int {
		if a.at.IsZero() != b.at.IsZero() { // what is not known comes last
			return cmp.Compare(len(b.Claimed), len(a.Claimed))
		}
		return a.at.Compare(b.at)
	})
	return c.write(w, r, http.StatusOK, "list", title, l)
}

func listedOf(id dedup.ID, r *dedup.Record) listed {
	l := listed{ID: hex.EncodeToString(id[:]), Claimed: "-", Attempt: strconv.Itoa(r.Attempt), Lease: "-", Owner: owner(r)}
	if at, ok := claimedAt(r.Fence); ok {
		l.at, l.Claimed = at, ago(at)
	}
	if r.State == dedup.StateInProgress {
		l.Lease, l.Lapsed = lease(r), r.Remaining <= 0
	}
	if r.Label != "" {
		l.Label = strconv.Quote(r.Label)
	}
	return l
}
