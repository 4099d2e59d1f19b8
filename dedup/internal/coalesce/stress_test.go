package coalesce

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

// Cancellations, the last call of many, one ID many times, and slow batches among fast ones all
// happen at once. Every call is answered once, with its own answer, and each sent call whose caller
// has left reaches Abandoned. A lost wake-up makes the test hang.
func TestEveryCallIsAnsweredOnce(t *testing.T) {
	for name, spin := range map[string]int{"fast store": 0, "slow store": 50} {
		t.Run(name, func(t *testing.T) {
			var sent, heard, left, unheard atomic.Int64
			var leaving sync.Map // by attempt: cancels the call
			c := newTestCoalescer(&batches{})
			c.Timeout = time.Minute
			c.rtt.rtt = time.Duration(spin) * 20 * time.Microsecond
			c.ask = func(ctx context.Context, batch []question) []answer {
				sent.Add(int64(len(batch)))
				wantDistinct(t, batch)
				answers := make([]answer, len(batch))
				for i, ch := range batch {
					answers[i].Attempt = ch.Attempt
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
			c.abandoned = func(reqs []question, _ []answer) { unheard.Add(int64(len(reqs))) }
			var wg sync.WaitGroup
			for caller := range 200 {
				wg.Go(func() {
					for n := range 50 {
						ch := numbered(rand.IntN(400))
						ch.Attempt = caller*50 + n
						ans := callAndMaybeLeave(c, ch, &leaving)
						var gone *AbandonedError
						switch {
						case ans.Err == nil && ans.Attempt == ch.Attempt:
							heard.Add(1)
						case errors.As(ans.Err, &gone):
							if !gone.Queued {
								left.Add(1)
							}
						default:
							t.Errorf("call %d got %+v", ch.Attempt, ans)
						}
					}
				})
			}
			wg.Wait()
			c.Life.Begin() // closing waits for the senders, and for this
			c.Life.End()
			_, ok := c.Life.Close(t.Context())
			require.True(t, ok, "senders go on")
			assert.Equal(t, 0, c.senders)
			assert.Equal(t, 0, c.sent)
			assert.False(t, c.gathering)
			assert.Equal(t, 0, c.waiting())
			assert.Zero(t, c.Limiter.n.Load())
			assert.Equal(t, unheard.Load(), left.Load())
			assert.Equal(t, sent.Load(), heard.Load()+unheard.Load())
			assert.NotZero(t, heard.Load())
			assert.NotZero(t, left.Load())
		})
	}
}

// callAndMaybeLeave makes a call, which half of the callers may cancel at any moment.
func callAndMaybeLeave(c *coalescer, ch question, leaving *sync.Map) answer {
	if rand.IntN(2) == 0 {
		return c.Do(context.Background(), ch)
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
	return c.Do(ctx, ch)
}

func wantDistinct(t *testing.T, batch []question) {
	t.Helper()
	seen := make(map[[16]byte]bool, len(batch))
	for _, ch := range batch {
		assert.False(t, seen[ch.ID], "%v twice in a batch of %d", ch.ID, len(batch))
		seen[ch.ID] = true
	}
}
