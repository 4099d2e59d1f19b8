package outbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// call is one call of the publisher. Its messages are of one topic, so that a topic that is slow or
// fails holds up no other.
type call struct {
	topic   string
	batch   *batch
	probe   bool
	began   time.Time
	counted *failing // leaves the topic out until the call has ended; or nil
	watched bool     // the dispatcher will hear when it has ended

	ended   chan struct{}
	results []error
}

// publish begins a call. The publisher may never return.
func (s *session) publish(b *batch, probe *failing) *call {
	c := &call{
		topic: b.messages[0].Topic, batch: b, probe: probe != nil, counted: probe,
		began: time.Now(), ended: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(s.calls, s.cfg.PublishTimeout)
	go func() {
		defer close(c.ended)
		defer cancel()
		s.call(ctx, b.messages, &c.results)
	}()
	return c
}

// overdue is when the relay stops waiting for a call.
func (c *call) overdue(cfg *RelayConfig) time.Time {
	return c.began.Add(cfg.PublishTimeout + linger)
}

func (c *call) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// await waits for the calls, for at most limit.
func await(calls []*call, limit time.Duration) {
	if len(calls) == 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, c := range calls {
		select {
		case <-c.ended:
		case <-timer.C:
			return
		}
	}
}

// call keeps the process alive when the publisher panics: otherwise the same message would make it
// panic again after every restart. A publisher that ends its goroutine has returned no result,
// which must not count as nil.
func (r *Relay) call(ctx context.Context, messages []Message, results *[]error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			*results = unacknowledged(len(messages),
				fmt.Sprintf("Publish panicked: %v\n%s", v, debug.Stack()))
		} else if !returned {
			*results = unacknowledged(len(messages), "Publish has ended its goroutine")
		}
	}()
	answer := r.cfg.Publisher.Publish(ctx, messages)
	*results, returned = answered(answer, len(messages)), true
}

// answered returns one result for each message, whatever the publisher has returned.
func answered(answer []error, n int) []error {
	switch {
	case answer == nil:
		return make([]error, n)
	case len(answer) != n:
		return unacknowledged(n, fmt.Sprintf("Publish returned %d results for %d messages",
			len(answer), n))
	}
	return answer
}

func unacknowledged(n int, why string) []error {
	results := make([]error, n)
	for i := range results {
		results[i] = fmt.Errorf("%w: %s", ErrUnacknowledged, why)
	}
	return results
}

// refusal is the error of the publisher's Check for a message, or nil when it has no Check.
func refusal(checker Checker, m *Message) (err error) {
	if checker == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("outbox: Check panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return checker.Check(m)
}
