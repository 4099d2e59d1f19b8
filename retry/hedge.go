package retry

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// race sends the flight first, and also a hedge if first is slow, and returns the flight that
// counts. It cancels the other flight, which closes its own response when it returns.
func (c *call) race(ctx context.Context, first *flight, limit time.Duration) (won *flight) {
	landed := make(chan *flight, 2)
	until := time.Now().Add(limit)
	out, back := []*flight{first}, []*flight(nil)
	defer func() { // also if a callback panicked
		for _, f := range out {
			f.leave(landed, won)
		}
		for _, f := range back {
			if f != won {
				f.close()
			}
		}
	}()
	go first.away(c.t.base, landed)
	slow := time.NewTimer(c.t.cfg.HedgeAfter)
	defer slow.Stop()
	for {
		select {
		case <-slow.C:
			if hedge := c.hedge(ctx, limit, until); hedge != nil {
				out = append(out, hedge)
				go hedge.away(c.t.base, landed)
			}
		case f := <-landed:
			out = slices.DeleteFunc(out, func(o *flight) bool { return o == f })
			if f.panicked != nil {
				panic(f.panicked)
			}
			back = append(back, f)
			if won = c.settle(back, len(out)); won != nil {
				return won
			}
		}
	}
}

// settle returns the flight that counts among those that came back, or nil while a flight is out
// that is worth waiting for. A final answer counts. If no answer is final, the last flight counts,
// but a response is preferred to an error.
func (c *call) settle(back []*flight, out int) *flight {
	first, last := back[0], back[len(back)-1]
	if out == 0 && first == last {
		return last
	}
	if class, _ := c.judge(last); class == Final {
		return last
	}
	switch {
	case out > 0:
		return nil
	case last.resp == nil && first.resp != nil:
		return first
	}
	return last
}

// hedge prepares the second copy. It returns nil if no second copy may be sent.
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
	told := false
	defer func() {
		if told {
			return
		}
		if c.Budget.giveBack(); f != nil { // OnRetry panicked
			f.ground()
		}
	}()
	if err != nil {
		return nil
	}
	c.notify(Event{Attempt: c.sends, Hedge: true})
	told = true
	return f
}

// leave cancels a copy that is still under way, and closes its response. won is nil if no copy has
// won.
func (f *flight) leave(landed <-chan *flight, won *flight) {
	cause := errDropped
	if won != nil && won.answered() {
		cause = errLost
	}
	f.cancel(cause)
	if !f.claimed.CompareAndSwap(false, true) {
		(<-landed).close() // it was faster: it is in the channel, or about to be
	}
}

// away calls fly on a goroutine of its own, which ends with the base's RoundTrip. A flight that has
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
