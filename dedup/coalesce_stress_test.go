package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever meets whatever (cancellation, the last call of a crowd, one ID many times, a
// slow batch among fast ones): every call is answered once, with its own answer, and
// what was sent for a caller that left reaches orphans. A lost wake-up hangs the test.
func TestEveryCallIsAnsweredOnce(t *testing.T) {
	for name, spin := range map[string]int{"fast store": 0, "slow store": 50} {
		t.Run(name, func(t *testing.T) {
			var sent, heard, left, orphaned atomic.Int64
			var leaving sync.Map // by attempt: cancels the call
			c := newTestCoalescer(&batches{})
			c.timeout = time.Minute
			c.trip.time = time.Duration(spin) * 20 * time.Microsecond
			c.send = func(ctx context.Context, batch []Finish) []Answer {
				sent.Add(int64(len(batch)))
				wantDistinct(t, batch)
				answers := make([]Answer, len(batch))
				for i, ch := range batch {
					answers[i].Record.Attempt = ch.Attempt
					if leave, ok := leaving.Load(ch.Attempt); ok && rand.IntN(2) == 0 {
						leave.(context.CancelFunc)()
					}
				}
				runtime.Gosched()
				for range rand.IntN(spin + 1) {
					runtime.Gosched()
				}
				if len(batch) == 1 && ctx.Err() != nil {
					answers[0].Err = ctx.Err()
				}
				return answers
			}
			c.orphans = func(reqs []Finish, _ []Answer) { orphaned.Add(int64(len(reqs))) }
			var wg sync.WaitGroup
			for caller := range 200 {
				wg.Go(func() {
					for n := range 50 {
						ch := numbered(rand.IntN(400))
						ch.Attempt = caller*50 + n
						ans := callAndMaybeLeave(c, ch, &leaving)
						var gone *abandonedError
						switch {
						case ans.Err == nil && ans.Record.Attempt == ch.Attempt:
							heard.Add(1)
						case errors.As(ans.Err, &gone):
							if !gone.queued {
								left.Add(1)
							}
						default:
							t.Errorf("call %d got %+v", ch.Attempt, ans)
						}
					}
				})
			}
			wg.Wait()
			c.life.Begin() // closing waits for the senders, and for this
			c.life.End()
			_, ok := c.life.Close(t.Context())
			require.True(t, ok, "senders go on")
			assert.Equal(t, 0, c.senders)
			assert.Equal(t, 0, c.sent)
			assert.False(t, c.gathering)
			assert.Equal(t, 0, c.queue.n)
			assert.Zero(t, c.crowd.n.Load())
			assert.Equal(t, orphaned.Load(), left.Load())
			assert.Equal(t, sent.Load(), heard.Load()+orphaned.Load())
			assert.NotZero(t, heard.Load())
			assert.NotZero(t, left.Load())
		})
	}
}

// callAndMaybeLeave makes a call, which half of the callers may cancel at any moment.
func callAndMaybeLeave(c *coalescer[Finish], ch Finish, leaving *sync.Map) Answer {
	if rand.IntN(2) == 0 {
		return c.do(context.Background(), ch)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaving.Store(ch.Attempt, cancel)
	yields := rand.IntN(400)
	go func() {
		for range yields {
			runtime.Gosched()
		}
		cancel()
	}()
	return c.do(ctx, ch)
}

func wantDistinct(t *testing.T, batch []Finish) {
	t.Helper()
	seen := make(map[ID]bool, len(batch))
	for _, ch := range batch {
		assert.False(t, seen[ch.ID], "%v twice in a batch of %d", ch.ID, len(batch))
		seen[ch.ID] = true
	}
}
