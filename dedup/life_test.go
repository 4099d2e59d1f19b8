package dedup

import (
	"context"
	"errors"
	"testing"
)

// Close waits for calls and for batches, one as much as the other, and refuses what comes.
func TestLifeEndsWithTheLast(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l := new(life)
	l.init()
	if err := l.enter(); err != nil {
		t.Fatal(err)
	}
	l.hold()
	l.begin()
	if left, drained := l.close(over); left != 2 || drained {
		t.Fatalf("with two calls and a batch: %d left, drained %t", left, drained)
	}
	if err := l.enter(); !errors.Is(err, ErrClosed) {
		t.Fatalf("enter after close: %v", err)
	}
	l.leave()
	l.leave()
	if left, drained := l.close(over); left != 0 || drained || l.behind() != 1 {
		t.Fatalf("with a batch: %d left, drained %t", left, drained)
	}
	l.end()
	if _, drained := l.close(over); !drained {
		t.Fatal("not drained when the last has ended")
	}
	l.hold() // completing a claim that was held all along
	l.leave()
}
