package deduptest

import (
	"bytes"

	"github.com/onceward/onceward/dedup/driver"
)

// sizes of the results that are stored, up to Harness.MaxResult.
var sizes = []int{1, 2, 255, 256, 4 << 10, 64 << 10, 256 << 10}

// binary has every byte value, and starts with what text formats trip over.
func binary(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	copy(b, "\x00\xff\r\n\"")
	return b
}

func checkResults(c *check) {
	results := [][]byte{nil, {}}
	for _, size := range sizes {
		if size < c.h.MaxResult {
			results = append(results, binary(size))
		}
	}
	results = append(results, binary(c.h.MaxResult))
	for _, state := range []driver.State{driver.StateSucceeded, driver.StateFailed} {
		for _, want := range results {
			o := c.acquire(newID(), long, long)
			change := o.change(state)
			change.Result = want
			a := o.mustFinish(change)
			c.wantResult("the answer of Finish", a.Record, want)
			dup := c.stranger(o.id).claim()
			c.wantOutcome("a claim of a finished key", dup, driver.Duplicate)
			c.wantResult("a claim of a finished key", dup.Record, want)
			rec := c.lookup(o.id)
			c.wantResult("Lookup", rec, want)
			if rec.NoResult {
				c.Errorf("a stored result of %d bytes is reported as not kept", len(want))
			}
		}
	}
}

func checkNoResult(c *check) {
	for _, kept := range []bool{true, false} {
		o := c.acquire(newID(), long, long)
		change := o.change(driver.StateSucceeded)
		change.NoResult = !kept
		o.mustFinish(change)
		a := c.stranger(o.id).claim()
		c.wantOutcome("a claim of a finished key", a, driver.Duplicate)
		if a.Record.NoResult == kept || a.Record.Result != nil {
			c.Errorf("want NoResult %t and no result, got %t and %d bytes", !kept,
				a.Record.NoResult, len(a.Record.Result))
		}
	}
}

// checkResultCopies writes into every slice that it gave the store or got from it, and expects the
// stored result unchanged.
func checkResultCopies(c *check) {
	want := binary(64)
	o := c.acquire(newID(), long, long)
	change := o.change(driver.StateSucceeded)
	change.Result = bytes.Clone(want)
	a := o.mustFinish(change)
	clear(change.Result)
	c.wantResult("after writing into the slice that was given", c.lookup(o.id), want)
	clear(a.Record.Result)
	clear(c.lookup(o.id).Result)
	clear(c.stranger(o.id).claim().Record.Result)
	c.wantResult("after writing into the slices that came back", c.lookup(o.id), want)
}
