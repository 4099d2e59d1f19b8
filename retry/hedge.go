package retry

import (
	"context"
	"net/http"
	"time"
)

// race flies first, and a hedge beside it if first is slow, and returns the one that counts. The
// other has been cancelled, and closes its response itself when it comes back.
func (c *call) race(ctx context.Context, first *flight, limit time.Duration) *flight {
	landed := make(chan *flight, 2)
	until := time.Now().Add(limit)
	go first.away(c.t.base, landed)
	slow := time.NewTimer(c.t.cfg.HedgeAfter)
	defer slow.Stop()
	var hedge, failed *flight
	for {
		select {
		case <-slow.C:
			if hedge = c.hedge(ctx, limit, until); hedge != nil {
				go hedge.away(c.t.base, landed)
			}
		case f := <-landed:
			other := first
			if f == first {
				other = hedge
			}
			if f.panicked != nil {
				leave(other, failed, landed)
				panic(f.panicked)
			}
			if other == nil || failed != nil {
				return better(f, failed, c)
			}
			if class, _ := c.judge(f); class == Final {
				leave(other, nil, landed)
				return f
			}
			failed = f
		}
	}
}

// hedge prepares the second copy; nil if it may not be sent.
func (c *call) hedge(ctx context.Context, limit time.Duration, until time.Time) *flight {
	if limit > 0 {
		if limit = time.Until(until); limit <= 0 {
			return nil
		}
	}
	if !c.Budget.Take() {
		return nil
	}
	f, err := c.launch(ctx, limit)
	if err != nil {
		return nil
	}
	c.tell(Event{Attempt: c.sends, Hedge: true})
	return f
}

// better chooses between the last to come back and one that failed before it; the other is closed.
// A response says more than an error.
func better(last, failed *flight, c *call) *flight {
	if failed == nil {
		return last
	}
	if class, _ := c.judge(last); class != Final && last.resp == nil && failed.resp != nil {
		last.close()
		return failed
	}
	failed.close()
	return last
}

// leave cancels the copy that is still on its way, if failed is not it, and closes what has come back.
func leave(other, failed *flight, landed <-chan *flight) {
	if failed != nil {
		failed.close()
		return
	}
	if other == nil {
		return
	}
	other.cancel(errLost)
	if !other.claimed.CompareAndSwap(false, true) {
		other = <-landed // it was faster: it is in the channel, or about to be
		other.close()
	}
}

// away is fly on a goroutine of its own, which ends with the base's RoundTrip. A flight that has
// been left behind is closed here.
func (f *flight) away(base http.RoundTripper, landed chan<- *flight) {
	defer func() {
		f.panicked = recover()
		if f.claimed.CompareAndSwap(false, true) {
			landed <- f
			return
		}
		f.close()
	}()
	f.fly(base)
}
