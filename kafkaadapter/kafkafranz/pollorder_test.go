package kafkafranz

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// between ends the poll under way, and waits until that poll has handed over its records. No other
// poll begins before between has returned.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := newPollOrder()
		var events []string
		go order.poll(t.Context(), func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) // handing over
			events = append(events, "handed over")
		})
		synctest.Wait()
		go order.between(func() { events = append(events, "assigned") })
		synctest.Wait()
		polled := make(chan struct{})
		go order.poll(t.Context(), func(ctx context.Context) {
			assert.NoError(t, ctx.Err(), "the next poll begins with a context that has ended")
			events = append(events, "polled")
			close(polled)
		})
		<-polled
		assert.Equal(t, []string{"handed over", "assigned", "polled"}, events)
		order.between(func() { events = append(events, "again") }) // no poll is under way
		assert.Len(t, events, 4)
	})
}
