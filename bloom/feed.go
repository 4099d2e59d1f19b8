package bloom

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrDead is the answer of a Feed that may feed no more: a newer one was begun, or it said Lost.
var ErrDead = errors.New("bloom: the feed is dead: a newer one was begun, or it was lost")

// Source says where marks come from.
type Source struct {
	Name  string // "group/topic/7", or a store's name; at most 65535 bytes
	Epoch uint64 // of the right to write there; 0 where there is none
	Seq   uint64 // the source's count of writes, as far as this process knows
}

// Feed is the right to say what a filter knows. Coverage belongs to it and not to the bits: it ends
// with the Feed and with the process. Its methods may be called from any goroutine.
type Feed struct {
	f      *Filter
	source Source
	lost   bool // under Filter.mu
}

// Begin starts a Feed. Everything is Unknown(Loading) from here on, and the Feed before is dead.
// Bits that are set stay: they can only make New rarer.
func (f *Filter) Begin(source Source) *Feed {
	fd := &Feed{f: f, source: source}
	f.change(func(t *table) (*table, []Event) {
		f.feed.Store(fd)
		return t.uncovered(Loading),
			[]Event{{Kind: CoverageLost, Generation: t.newest, Reason: Loading}}
	})
	return fd
}

// uncovered returns the table with nothing in it known to be complete.
func (t *table) uncovered(why Reason) *table {
	next := *t
	next.covered, next.fed, next.before = 0, false, why
	next.until, next.through = instant{}, instant{}
	return &next
}

// newestIndex is the largest index whose end fits a Duration.
func (f *Filter) newestIndex() int64 { return math.MaxInt64/int64(f.slice) - MaxSlices - 2 }

// open opens gen if it is newer than all generations.
func (fd *Feed) open(gen int64) (*table, error) {
	t := fd.f.live.Load()
	if gen <= t.newest {
		return t, nil
	}
	if gen > fd.f.newestIndex() {
		return nil, fmt.Errorf("bloom: Feed: generation %d has no time", gen)
	}
	return fd.f.rotate(gen), nil
}

// Add remembers an id in the generation that its mark belongs to. If that is newer than all, Add
// opens it: the index is the store's, and the filter forgets what then falls out of the window.
// Call it before the mark is sent. An id from before the window is left out. After a newer Begin
// the answer is ErrDead, and nothing is written; after Lost the id is still added.
func (fd *Feed) Add(gen int64, id [16]byte) error {
	f := fd.f
	if f.feed.Load() != fd {
		return ErrDead
	}
	t, err := fd.open(gen)
	if err != nil {
		return err
	}
	if g := t.gen(gen); g != nil {
		f.write(g, f.secret.id(id))
	}
	return nil
}

// claim makes a change if the feed is alive. Otherwise it returns ErrDead.
func (fd *Feed) claim(how func(t *table) *table) error {
	var err error
	fd.f.change(func(t *table) (*table, []Event) {
		if fd.f.feed.Load() != fd || fd.lost {
			err = ErrDead
			return t, nil
		}
		next := how(t)
		if next.reason() == None && t.reason() != None {
			return next, []Event{{Kind: Covered, Generation: next.newest}}
		}
		return next, nil
	})
	return err
}

// Covered says that every mark of gen, up to this sequence of the source, was fed, and that later
// ones will be, before they are sent. A generation that is older than the window is left out; one
// that is newer than all is opened.
func (fd *Feed) Covered(gen int64, through uint64) error {
	if _, err := fd.open(gen); err != nil {
		return err
	}
	return fd.claim(func(t *table) *table { return t.cover(gen, through) })
}

// cover is called under Filter.mu.
func (t *table) cover(gen int64, through uint64) *table {
	g := t.gen(gen)
	if g == nil {
		return t
	}
	g.through = max(g.through, through)
	next := *t
	next.covered |= 1 << (gen - t.oldest())
	return &next
}

// Open says that every mark of the source passes Add before it is sent, from the first Open of this
// Feed until the time given: generations that begin after that first Open are covered from their
// start. Call it again to renew. After a gap, renew only if nobody else can have written in it,
// which an unchanged epoch of your own proves; otherwise Begin anew. The time is compared on the
// monotonic clock and on the wall clock, and is over when it is over on either.
func (fd *Feed) Open(until time.Time) error {
	return fd.claim(func(t *table) *table {
		next := *t
		next.fed, next.until = true, fd.f.instant(until)
		return &next
	})
}

// Through says that every mark that was committed before at was fed. It is for a filter that
// follows a store to which others write: only Absent uses it. Generations that begin after
// the first call are covered as far as at reaches. An earlier at than before changes nothing.
func (fd *Feed) Through(at time.Time) error {
	return fd.claim(func(t *table) *table {
		next := *t
		next.fed = true
		if i := fd.f.instant(at); t.through == (instant{}) || t.through.before(i) {
			next.through = i
		}
		return &next
	})
}

// Lost takes back all that the Feed has said: everything is Unknown for this reason, which is Lost
// where it is None. Only a new Feed can cover again. A dead feed loses nothing.
func (fd *Feed) Lost(why Reason) {
	if why == None {
		why = Lost
	}
	fd.f.change(func(t *table) (*table, []Event) {
		if fd.f.feed.Load() != fd {
			return t, nil
		}
		fd.lost = true
		return t.uncovered(why), []Event{{Kind: CoverageLost, Generation: t.newest, Reason: why}}
	})
}
