package outbox

import (
	"context"
	"fmt"
	"runtime/debug"
)

// publish calls the publisher, which may never return: hung is then closed when it does.
func (r *Relay) publish(ctx context.Context, messages []Message) (results []error, hung <-chan struct{}) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	ended := make(chan struct{})
	var answer []error
	go func() {
		defer close(ended)
		defer cancel()
		r.call(ctx, messages, &answer)
	}()
	select {
	case <-ended:
		return answer, nil
	case <-ctx.Done():
	}
	if waitFor(ended, linger) {
		return answer, nil
	}
	return unacknowledged(len(messages), "Publish has not returned"), ended
}

// call keeps the process alive when the publisher panics: a message that makes it would have it
// panic again after every restart. One that ends its goroutine has returned nothing, which is not
// nil.
func (r *Relay) call(ctx context.Context, messages []Message, results *[]error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			*results = unacknowledged(len(messages), fmt.Sprintf("Publish panicked: %v\n%s", v, debug.Stack()))
		} else if !returned {
			*results = unacknowledged(len(messages), "Publish has ended its goroutine")
		}
	}()
	answer := r.cfg.Publisher.Publish(ctx, messages)
	*results, returned = answered(answer, len(messages)), true
}

// answered is one result for each message, whatever the publisher has made of it.
func answered(answer []error, n int) []error {
	switch {
	case answer == nil:
		return make([]error, n)
	case len(answer) != n:
		return unacknowledged(n, fmt.Sprintf("Publish returned %d results for %d messages", len(answer), n))
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

// refusal is what the publisher's Check says of a message. It is not asked when there is none.
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
