package dedup

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After any push, move and remove, the queue has all claims that are in it, its head is due first,
// and no claim is renewed later than its time plus the slack.
func TestRenewQueueKeepsTheOrder(t *testing.T) {
	const slack = 20
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var q renewQueue
		var in []*keptClaim
		for now := range time.Duration(300) {
			switch n := len(in); {
			case n > 0 && rnd.IntN(4) == 0:
				i := rnd.IntN(n)
				q.remove(in[i])
				in = slices.Delete(in, i, i+1)
			case n > 0 && rnd.IntN(4) == 0: // renewed early, or to be tried again
				q.move(in[rnd.IntN(n)], now+rand.N[time.Duration](100))
			default:
				next := now + rand.N[time.Duration](2*slack)
				if rnd.IntN(20) == 0 {
					next = never
				}
				k := &keptClaim{next: next}
				q.push(k, slack)
				in = append(in, k)
				require.GreaterOrEqual(t, k.next, next, "seed %d", seed)
				require.LessOrEqual(t, k.next-next, time.Duration(slack), "seed %d", seed)
			}
			all := q.all()
			require.Len(t, all, len(in), "seed %d", seed)
			require.False(t, slices.ContainsFunc(in, func(k *keptClaim) bool {
				return !slices.Contains(all, k)
			}), "seed %d", seed)
			if len(in) == 0 {
				require.Nil(t, q.head(), "seed %d", seed)
				continue
			}
			first := slices.MinFunc(in, func(a, b *keptClaim) int {
				return cmp.Compare(a.next, b.next)
			})
			require.Equal(t, first.next, q.head().next, "seed %d", seed)
		}
	}
}

// Claims whose times come almost in order are kept in the list and not in the heap.
func TestRenewQueueKeepsTheYoungInAList(t *testing.T) {
	var q renewQueue
	q.push(&keptClaim{next: never}, 20)
	for i := range time.Duration(100) {
		q.push(&keptClaim{next: i ^ 3}, 20)
	}
	assert.Len(t, q.heap, 1)
}
