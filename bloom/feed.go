package bloom

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrDead is the error of a Feed that may feed no longer: a newer Feed was begun, or it called
// Lost.
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

// Begin starts a Feed. From here on, every answer is Unknown(Loading) and the previous Feed is
// dead. Bits that are set stay: they can only make New rarer.
func (f *Filter) Begin(source Source) *Feed {
	fd := &Feed{f: f, source: source}
	f.change(func(t *table) (*table, []Event) {
		f.feed.Store(fd)
		return t.uncovered(Loading),
			[]Event{{Kind: CoverageLost, Generation: t.newest, Reason: Loading}}
	})
	return fd
}

// uncovered returns the table without any coverage: no generation counts as complete.
func (t *table) uncovered(why Reason) *table {
	next := *t
	next.covered, next.fed, next.before = 0, false, why
	next.until, next.through = instant{}, instant{}
	return &next
}

// newestIndex returns the largest index whose end fits a Duration.
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

// Add remembers an id in the generation that its mark belongs to. If that generation is newer than
// all others, Add opens it, because the store decides the index. The filter then forgets what falls
// out of the window. Call it before the mark is sent. An id from before the window is left out.
// After a newer Begin, Add returns ErrDead and writes nothing; after Lost, it still adds the id.
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

// Covered declares that every mark of gen up to the source's sequence number through was fed, and
// that later marks will be fed before they are sent. Covered ignores a generation that is older
// than the window, and opens one that is newer than all others.
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

// Open declares that from the first Open of this Feed until the given time, every mark of the
// source passes Add before it is sent. So generations that begin after that first Open are covered
// from their start. Call it again to renew. After a gap, renew only if nobody else can have written
// during the gap, which an unchanged epoch of your own proves; otherwise call Begin again. The time
// is compared on the monotonic clock and on the wall clock, and is over when it is over on either.
func (fd *Feed) Open(until time.Time) error {
	return fd.claim(func(t *table) *table {
		next := *t
		next.fed, next.until = true, fd.f.instant(until)
		return &next
	})
}

// Through says that every mark that was committed before at was fed. It is for a filter that
// follows a store to which others write: only Absent uses it. Generations that begin after the
// first call are covered up to at. A call with an earlier at changes nothing.
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

// Lost takes back all that the Feed has declared: every answer is Unknown for the given reason. If
// that reason is None, it becomes Lost. Only a new Feed can cover again. A dead feed loses nothing.
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
