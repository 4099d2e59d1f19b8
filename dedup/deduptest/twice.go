package deduptest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// Twice runs the handler of s again: one message after another, and two processes at once. It does
// so with a crash, a pause or a lost message at each call that the handler makes to its store,
// before and after the store has executed the call. A message that was not acknowledged is
// redelivered to another process until it is.
//
// Twice fails t for a message that was acknowledged without an effect, or never, and for one with a
// second effect that no fault explains. It returns all that it saw, so that a test can ask for
// more. A crash is a call of the store that does not return before Twice judges. So code of the
// handler that does not call the Deduper is not interrupted.
func Twice(t testing.TB, s Subject) Report {
	t.Helper()
	tr := newTrial(t, s)
	never := func(int) fate { return unharmed }
	var all sync.WaitGroup
	all.Go(func() {
		m := tr.newMessage("again")
		tr.until(m, never)
		tr.until(m, never)
	})
	all.Go(func() {
		m := tr.newMessage("together")
		var both sync.WaitGroup
		both.Go(func() { tr.until(m, never) })
		both.Go(func() { tr.until(m, never) })
		both.Wait()
	})
	for _, b := range []blow{crashBefore, crashAfter, loseRequest, loseReply, pauseBefore,
		pauseAfter} {
		all.Go(func() { tr.steps(b) })
	}
	all.Wait()
	return tr.judge()
}

// most bounds how many calls of a handler steps hits.
const most = 100

// steps hits the first call of a delivery with b, the second call of another one, and so on until
// a delivery has no such call.
func (tr *trial) steps(b blow) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := 1; n <= most; n++ {
		m := tr.newMessage(fmt.Sprintf("%s %d", b, n))
		var hit atomic.Bool // also by a call in the background, later
		first := tr.deliver(m, func(_ Op, call int) blow {
			if call != n {
				return nothing
			}
			hit.Store(true)
			return b
		})
		if !hit.Load() {
			return
		}
		all.Go(func() {
			if !first {
				tr.until(m, func(int) fate { return unharmed })
			}
			tr.deliver(m, unharmed)
		})
	}
}

func unharmed(Op, int) blow { return nothing }
