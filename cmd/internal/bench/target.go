package bench

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// target is the server that is measured.
type target interface {
	// title says what it is.
	title() string
	// look asks the server whether it may be loaded, and writes nothing.
	look(ctx context.Context) error
	// open makes what is needed for so many keys and returns the two sides. It is called once to
	// warm up, and once to be measured.
	open(ctx context.Context, warm bool, expected int) (ours, bare work, err error)
	// sample is how things stand while nobody works.
	sample(ctx context.Context) (sample, error)
	// traffic counts what a side, 0 for onceward and 1 for bare, has sent so far.
	traffic(side int) traffic
	// kind is a word for an error.
	kind(err error) string
	// remains says how a person removes what a killed run has left.
	remains() string
	// clean removes all that was made. A thorough one looks twice, for what was under way when it
	// began.
	clean(ctx context.Context, thorough bool) error
	// close disconnects.
	close()
}

// sample is what a server says of itself. What it does not say is not known.
type sample struct {
	// bytes that are used for data, and seconds of processor.
	bytes, cpu known
	// full is the share of the memory that is allowed; limit is that memory, 0 for no limit.
	full, limit float64
	// written and busy tell that somebody else writes, or works, at this moment.
	written, busy bool
}

// known is a number that may not be.
type known struct {
	value float64
	ok    bool
}

// traffic is commands and round trips.
type traffic struct {
	commands, trips int64
	known           bool
}

// restTime is how long a server is looked at while nobody works.
const restTime = 100 * time.Millisecond

// errMistaken are answers that must not be: the figures would be of something else.
var (
	errRanAgain = errors.New("a duplicate was taken for new")
	errSkipped  = errors.New("a new key was taken for a duplicate")
)

// judge compares what a message was taken for with what it is.
func judge(m message, outcome driver.Outcome) error {
	switch {
	case outcome == dedup.Acquired && m.dup:
		return errRanAgain
	case outcome == dedup.Duplicate && !m.dup:
		return errSkipped
	}
	return nil
}

// kinds of errors that stores have in common, most telling first.
var kinds = []struct {
	err  error
	name string
}{
	{errRanAgain, "duplicate_taken_for_new"}, {errSkipped, "new_taken_for_duplicate"},
	{driver.ErrStoreFull, "store_full"},
	{dedup.ErrLeaseLost, "lease_lost"}, {dedup.ErrInFlight, "in_flight"},
	{dedup.ErrUncertain, "uncertain"}, {dedup.ErrNoResult, "no_result"},
}

func commonKind(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return ""
}
