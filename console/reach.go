package console

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

const (
	// maxCalls bounds how many pages of the store one page of the console goes over, and maxFound
	// how many keys it takes from an index.
	maxCalls = 20
	maxFound = 10_000
	// listTime and standingTime bound how long a list and the overview look for keys in a store
	// that holds many others: nobody wants to wait for longer without an answer, and Redis has
	// other clients to serve.
	listTime     = time.Second
	standingTime = 500 * time.Millisecond
	// maxCount is larger than any real count of keys.
	maxCount = 1 << 50
)

// reach is how much of a store this page and the pages before it have looked through.
type reach struct {
	Next    string // where to go on; empty at the end
	Foreign int    // on this page
	Scanned bool   // the store is a Scanner, which has made the counts below
	Passed  int64  // keys that were looked at
	total   int64  // zero when it is not known
}

// Looked is the text of Passed. It is not exact when keys were added meanwhile, or looked at twice.
func (r reach) Looked() string {
	if r.total > 0 {
		return grouped(uint64(min(r.Passed, r.total)))
	}
	return grouped(uint64(r.Passed))
}

// Total is the text of total. It is empty when total is not known.
func (r reach) Total() string {
	if r.total <= 0 {
		return ""
	}
	return grouped(uint64(r.total))
}

// wanted is what a page looks for.
type wanted struct {
	states       []driver.State
	irreversible bool // of an IrreversibleLister
	limit        int  // of one question to the store
	enough       int
	budget       time.Duration
}

// keyList is what a page has found.
type keyList struct {
	Uncertain bool     // the keys are uncertain; otherwise in flight
	Keys      []listed // that match the filter
	// Matching counts the keys that match the filter, including those that are not shown, and All
	// counts the keys before the filter.
	Matching, All int
	marked        int // of All, past their point of no return
	reach
}

// Oldest is the age of the oldest key, or empty if no age is known.
func (f keyList) Oldest() string {
	var oldest *listed
	for i := range f.Keys {
		if l := &f.Keys[i]; !l.at.IsZero() && (oldest == nil || l.at.Before(oldest.at)) {
			oldest = l
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.Age
}

// Lapsed counts the keys whose lease has lapsed.
func (f keyList) Lapsed() (n int) {
	for i := range f.Keys {
		if f.Keys[i].Lapsed {
			n++
		}
	}
	return n
}

// split takes the keys past their point of no return out of f.
func (f *keyList) split() (marked keyList) {
	marked.reach = f.reach
	var others []listed
	for _, l := range f.Keys {
		if l.record.Irreversible {
			marked.Keys = append(marked.Keys, l)
		} else {
			others = append(others, l)
		}
	}
	marked.All = f.marked
	f.Keys, f.All = others, f.All-f.marked
	return marked
}

// collect finds keys, leaves out what does not match the filter, and puts the rest in order.
func (c *Console) collect(ctx context.Context, store Lister, at reach, want wanted,
	f *filter) (keyList, error) {
	got := keyList{Uncertain: slices.Contains(want.states, driver.StateUncertain)}
	seen := make(map[driver.ID]bool) // a SCAN may name a key twice
	err := c.goOn(ctx, store, &at, want, func(id driver.ID, r dedup.Record) {
		if seen[id] {
			return
		}
		seen[id] = true
		got.All++
		if r.Irreversible {
			got.marked++
		}
		if l := listedOf(id, &r); f.matches(&l) {
			got.Keys = append(got.Keys, l)
		}
	}, func() bool { return len(got.Keys) >= want.enough })
	got.reach = at
	f.sort(got.Keys)
	oldest := time.Duration(0)
	for i := range got.Keys {
		if at := got.Keys[i].at; !at.IsZero() {
			oldest = max(oldest, time.Since(at))
		}
	}
	for i := range got.Keys {
		if at := got.Keys[i].at; !at.IsZero() && oldest > 0 {
			got.Keys[i].Share = max(int(100*time.Since(at)/oldest), 1)
		}
	}
	return got, err
}

// goOn continues where an earlier page has stopped, until there are enough keys or its time is up,
// which is at most half of Options.Timeout.
func (c *Console) goOn(ctx context.Context, store Lister, at *reach, want wanted,
	each func(driver.ID, dedup.Record), enough func() bool) (err error) {
	scanner, scans := store.(Scanner)
	indexed, ok := store.(IrreversibleLister)
	if want.irreversible && !ok {
		return errors.New("console: the store has no index of irreversible attempts")
	}
	at.Scanned = scans && !want.irreversible
	ends := time.Now().Add(min(want.budget, c.options.Timeout/2))
	for range maxCalls {
		var foreign int
		var looked int64
		switch {
		case want.irreversible:
			at.Next, foreign, err = indexed.IrreversibleKeys(ctx, at.Next, want.limit, want.states,
				each)
		case scans:
			at.Next, looked, at.total, foreign, err = scanner.ScanKeys(ctx, at.Next, want.limit,
				max(time.Until(ends), 1), want.states, each)
		default:
			at.Next, foreign, err = store.Keys(ctx, at.Next, want.limit, want.states, each)
		}
		if err != nil {
			return err
		}
		at.Foreign += foreign
		at.Passed += looked
		if at.Next == "" || enough() || !time.Now().Before(ends) {
			return nil
		}
	}
	return nil
}

// countOf reads a count from a link of this console; anything else counts as zero.
func countOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}
