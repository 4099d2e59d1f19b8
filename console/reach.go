package console

import (
	"context"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

const (
	// maxCalls bounds how many pages of the store one page of the console goes over.
	maxCalls = 20
	// listTime and standingTime bound how long a list and the overview look for keys in a store
	// that holds many others: nobody wants to wait for longer without a word, and Redis has others
	// to answer.
	listTime     = time.Second
	standingTime = 500 * time.Millisecond
	// maxCount is above all counts of keys.
	maxCount = 1 << 50
)

// reach is how far a store was looked through, on this page and those before it.
type reach struct {
	Next    string // where to go on; empty at the end
	Foreign int    // on this page
	Scanned bool   // the store is a Scanner, and the counts below are its
	Passed  int64  // keys that were looked at
	total   int64  // zero when it is not known
}

// Looked is for people. It is not exact when keys were added meanwhile, or looked at twice.
func (r reach) Looked() string {
	if r.total > 0 {
		return grouped(uint64(min(r.Passed, r.total)))
	}
	return grouped(uint64(r.Passed))
}

// Total is for people, and empty when it is not known.
func (r reach) Total() string {
	if r.total <= 0 {
		return ""
	}
	return grouped(uint64(r.total))
}

// wanted is what a page looks for.
type wanted struct {
	states []driver.State
	limit  int
	budget time.Duration
}

// goOn looks further from where an earlier page has come to, until there are enough keys or its
// time is up, which is at most half of what the page may take.
func (c *Console) goOn(ctx context.Context, store Lister, at reach, want wanted,
	each func(driver.ID, dedup.Record)) (reach, error) {
	found := 0
	count := func(id driver.ID, r dedup.Record) {
		found++
		each(id, r)
	}
	scanner, scans := store.(Scanner)
	at.Scanned = scans
	ends := time.Now().Add(min(want.budget, c.options.Timeout/2))
	for calls := 0; calls < maxCalls; calls++ {
		var foreign int
		var looked int64
		var err error
		if scans {
			at.Next, looked, at.total, foreign, err = scanner.ScanKeys(ctx, at.Next, want.limit,
				max(time.Until(ends), 1), want.states, count)
		} else {
			at.Next, foreign, err = store.Keys(ctx, at.Next, want.limit, want.states, count)
		}
		if err != nil {
			return at, err
		}
		at.Foreign += foreign
		at.Passed += looked
		if at.Next == "" || found >= want.limit || !time.Now().Before(ends) {
			break
		}
	}
	return at, nil
}

// countOf reads a count that a link of ours carries; whatever else comes is none.
func countOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}
