package bloom

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func id(n uint64) (b [16]byte) {
	binary.BigEndian.PutUint64(b[8:], n)
	return b
}

// hand is a clock that tests set.
type hand struct{ ns atomic.Int64 }

func (h *hand) now() time.Duration    { return time.Duration(h.ns.Load()) }
func (h *hand) set(to time.Duration)  { h.ns.Store(int64(to)) }
func (h *hand) move(by time.Duration) { h.ns.Add(int64(by)) }
func small(h *hand) Options {
	return Options{Window: 40 * time.Second, Rate: 100, Clock: h.now, Kind: testKind}
}

// testKind is the kind of filters that tests make; bothKinds runs one for each.
var testKind Kind

func bothKinds(t *testing.T, test func(t *testing.T)) {
	for _, testKind = range []Kind{Classic, Blocked} {
		t.Run(testKind.String(), test)
	}
}

func denies(f *Filter, n uint64) bool { return !f.now().has(f.secret.id(id(n))) }
func (f *Filter) now() *table         { return f.at(f.instant(time.Now())) }
func mustNew(t testing.TB, o Options) *Filter {
	t.Helper()
	f, err := New(o)
	require.NoError(t, err)
	return f
}

// covering is an open feed of a filter whose source is known to be empty.
func covering(t testing.TB, f *Filter) *Feed {
	t.Helper()
	feed := f.Begin(Source{Name: "s", Epoch: 1})
	coverAll(t, f, feed)
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	return feed
}

func coverAll(t testing.TB, f *Filter, feed *Feed) {
	t.Helper()
	for gen := f.live.Load().oldest(); gen <= f.live.Load().newest; gen++ {
		require.NoError(t, feed.Covered(gen, 0))
	}
}

func TestRotationNeverForgetsInTheWindow(t *testing.T) {
	bothKinds(t, testRotationNeverForgetsInTheWindow)
}

func testRotationNeverForgetsInTheWindow(t *testing.T) {
	const s = 10 * time.Second // a slice
	for name, late := range map[string]func(r *rand.Rand) time.Duration{
		"exact": func(*rand.Rand) time.Duration { return 0 },
		"late":  func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(s))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			clock := &hand{}
			f := mustNew(t, small(clock))
			truly, added := time.Duration(0), map[uint64]time.Duration{}
			for n := range uint64(600) {
				switch r.IntN(50) {
				case 0: // the clock is stopped
				case 1:
					truly += time.Duration(r.Int64N(int64(6 * s))) // the clock jumps ahead
				default:
					truly += time.Duration(r.Int64N(int64(s / 10)))
				}
				clock.set(truly - late(r)) // a late clock may go back
				f.Add(id(n))
				added[n] = truly
				for old, at := range added {
					if truly-at > 4*s {
						delete(added, old)
					} else {
						require.False(t, denies(f, old), "id %d, %v old, was forgotten", old,
							truly-at)
					}
				}
			}
		})
	}
}

func TestIndexNeverGoesBack(t *testing.T) {
	clock := &hand{}
	clock.set(time.Hour)
	f := mustNew(t, small(clock))
	f.Add(id(1))
	clock.set(0)
	f.Add(id(2))
	assert.EqualValues(t, 360, f.live.Load().newest, "a clock that was set back")
	assert.True(t, !denies(f, 1) && !denies(f, 2), "a clock that was set back")
	clock.set(time.Hour + time.Minute)
	assert.True(t, denies(f, 1) && denies(f, 2), "not forgotten a window and two slices later")
	clock.set(-time.Hour)
	assert.EqualValues(t, -360, mustNew(t, small(clock)).live.Load().newest,
		"before the clock's origin")
}

// A writer chose its generation, was paused, and continues after that generation was dropped.
func TestAddOfAPausedWriter(t *testing.T) { bothKinds(t, testAddOfAPausedWriter) }

func testAddOfAPausedWriter(t *testing.T) {
	clock := &hand{}
	f := mustNew(t, small(clock))
	made := 0
	f.layer = func(bits uint64) *layer {
		if made++; made == 1 {
			clock.move(10 * time.Minute)
			f.now()
		}
		return f.newLayer(bits)
	}
	f.Add(id(1))
	assert.False(t, denies(f, 1), "the id is in bits that nobody reads")
}

func TestConcurrent(t *testing.T) { bothKinds(t, testConcurrent) }

func testConcurrent(t *testing.T) {
	clock := &hand{}
	o := small(clock)
	o.MaxBytes = 1 << 24
	f := mustNew(t, o)
	covering(t, f)
	var done atomic.Bool
	var writers, rotator sync.WaitGroup
	rotator.Go(func() {
		for !done.Load() {
			clock.move(time.Second)
			f.Check(id(0))
		}
	})
	for w := range uint64(4) {
		writers.Go(func() {
			for n := range uint64(2000) {
				key := id(n<<3 | w)
				began := clock.now()
				f.Add(key)
				answer, reason := f.Check(key)
				if !assert.False(t, clock.now()-began <= o.Window && answer != Maybe &&
					reason != Saturated,
					"%v, %v of an id that was just added", answer, reason) {
					return
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	rotator.Wait()
	assert.NotZero(t, f.Stats().Rotations, "the clock moved and nothing rotated")
}

func TestNoAllocations(t *testing.T) { bothKinds(t, testNoAllocations) }

func testNoAllocations(t *testing.T) {
	f := mustNew(t, Options{Window: time.Hour, Rate: 100, Kind: testKind})
	feed := covering(t, f)
	f.Add(id(1))
	gen := f.live.Load().newest
	n, batch := uint64(0), make([]Query, 2*group)
	for name, do := range map[string]func(){
		"Check":    func() { n++; f.Check(id(n)) },
		"Where":    func() { n++; f.Where(id(n)) },
		"WhereAll": func() { n++; batch[0].ID = id(n); f.WhereAll(batch) },
		"Absent":   func() { n++; f.Absent(id(n), time.Minute) },
		"Add":      func() { n++; f.Add(id(n)) },
		"Feed.Add": func() { n++; _ = feed.Add(gen, id(n)) },
	} {
		assert.Zero(t, testing.AllocsPerRun(500, do), "%s allocates", name)
	}
}
