// Package deduptest proves that an implementation of [driver.Store] keeps its contract,
// and breaks stores on purpose.
//
// [Twice] and [Storm] test a handler of yours: they run it again through crashes, pauses and lost
// replies, and fail for a message that is lost, or has a second effect that no fault explains.
//
//	func TestShip(t *testing.T) {
//		deduptest.Twice(t, deduptest.Subject{Deliver: deliver, Effects: parcels})
//	}
//
// [Run] is the conformance suite: call it from a test of your own store. [Faulty] wraps any store
// and loses requests and replies. A test that needs no faults uses [dedup.Memory].
//
// It imports testing; import it from tests only.
package deduptest

import (
	"testing"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

const (
	// DefaultLease is the default of Harness.Lease.
	DefaultLease = 150 * time.Millisecond
	// DefaultMaxResult is the default of Harness.MaxResult, in bytes.
	DefaultMaxResult = 256 << 10
	// DefaultWalkSteps is the default of Harness.WalkSteps.
	DefaultWalkSteps = 200
)

// Harness tells [Run] how to reach the store under test. Only New is required.
type Harness struct {
	// New returns the store under test; it is called once per check. It may return the
	// same store each time, and the store may be full of other data: every check
	// uses random keys of its own. Free what it opened with t.Cleanup.
	New func(t testing.TB) driver.Store

	// Advance moves the clock of every store that New has returned. Nil, the default,
	// means that the clock is real: checks then wait, and run side by side. Checks
	// with an Advance run one after the other.
	Advance func(d time.Duration)

	// Lease is the shortest lease, hold and window that the store can tell from zero. A key that
	// the store has forgotten must get a larger fence after that time. Only what must lapse gets so
	// short a lease, so a slow server fails no check. Default [DefaultLease].
	Lease time.Duration

	// MaxResult is the size in bytes of the largest result the store keeps. Default
	// [DefaultMaxResult].
	MaxResult int

	// WalkSteps is how many calls each of the random walks makes. With a real clock the
	// walks take most of the suite's time; fewer steps take less. Default
	// [DefaultWalkSteps].
	WalkSteps int

	// SeenOnly is for a store that keeps no failures either (see [driver.Limits]): the checks
	// then store none. It implies DoneOnly.
	SeenOnly bool

	// OneWindow is for a store that has one window for all keys, and refuses others. It must
	// be one hour. The checks then ask for no other window, and do not see a record expire: the
	// store's own tests must check that.
	OneWindow bool

	// DoneOnly is for a store that keeps of a succeeded key only that it is done: no result,
	// attempt, fence, fingerprint, origin or label. It may keep that for longer than the
	// window. It implies OneWindow.
	DoneOnly bool

	// OnePartition is for a store that wants all claims of a key to come from one partition.
	// The random walks then use a single partition.
	OnePartition bool

	// Unreadable plants values that the store must take neither for absent nor for done: a value of
	// a newer version, of the wrong type, or cut in the middle. The key of the map names the case.
	// Nil, the default, suits a store that nobody else can write.
	Unreadable map[string]func(t testing.TB, store driver.Store, id driver.ID)
}

// Run runs the conformance suite as subtests of t and returns when all have ended. A
// failed check logs what it prevents.
//
// With a real clock it takes about forty times Harness.Lease on two processors, and
// less with a larger -parallel. Run it with -race.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h = h.withDefaults(t)
	// The group makes Run wait for its parallel children, so that a caller may stop
	// its server when Run returns.
	t.Run("conformance", func(t *testing.T) {
		for _, p := range suite(h) {
			t.Run(p.name, func(t *testing.T) {
				if h.Advance == nil {
					t.Parallel()
				}
				p.prove(t, h)
			})
		}
	})
}

func (h Harness) withDefaults(t testing.TB) Harness {
	t.Helper()
	if h.New == nil {
		t.Fatal("deduptest: Harness.New is nil")
	}
	if h.Lease < 0 || h.MaxResult < 0 || h.WalkSteps < 0 {
		t.Fatal("deduptest: Harness.Lease, Harness.MaxResult and Harness.WalkSteps must not be negative")
	}
	h.DoneOnly = h.DoneOnly || h.SeenOnly
	h.OneWindow = h.OneWindow || h.DoneOnly
	if h.Lease == 0 {
		h.Lease = DefaultLease
	}
	if h.MaxResult == 0 {
		h.MaxResult = DefaultMaxResult
	}
	if h.WalkSteps == 0 {
		h.WalkSteps = DefaultWalkSteps
	}
	return h
}
