package guarantees_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

var askedRow = row{
	holds: map[string]func(*testing.T){
		"as Claimed, but after an attempt that died, or gave up, once its irreversible part might have begun, the downstream is asked before anything runs again": askedFirst,
	},
	doubles: map[string]func(*testing.T){
		"only if the resolver's answer is wrong, or becomes wrong because a request of the first attempt was still on its way (send it under `DownstreamKey`)": wrongAnswer,
		"Redis losing an acknowledged write, at failover or at a crash without `appendfsync always`":                                                           func(t *testing.T) { failover(t, askedThroughFailover) },
	},
}

// bank is a downstream: it counts payments, and can be asked. keyed, it takes each key once.
type bank struct {
	*tally
	keyed     bool
	keys      map[string]bool
	questions int
}

func (b *bank) pay(k, key string) {
	if b.keyed && b.keys[key] {
		return
	}
	b.keys[key] = true
	b.add(k)
}

// asks sets a Resolve that answers with the state of the bank at that moment.
func (b *bank) asks(c *dedup.Config) {
	c.Resolve = func(_ context.Context, k string, _ dedup.Record) (dedup.Resolution, error) {
		b.questions++
		if b.of(k) > 0 {
			return dedup.Happened(nil), nil
		}
		return dedup.DidNotHappen(), nil
	}
}

// payment is a handler whose process may end at three points.
func (b *bank) payment(w *worker, k, dies string) func(context.Context) (string, error) {
	at := func(point string) {
		if dies == point {
			w.die()
		}
	}
	return func(ctx context.Context) (string, error) {
		a, _ := dedup.FromContext(ctx)
		at("before MarkIrreversible")
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
		at("after MarkIrreversible")
		b.pay(k, a.DownstreamKey("bank"))
		at("after the payment")
		return "", nil
	}
}

func newBank() *bank { return &bank{tally: newTally(), keys: map[string]bool{}} }

// askedFirst: a payment is made once wherever its process dies, and the bank is asked exactly when
// it might have been made.
func askedFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		for dies, questions := range map[string]int{"before MarkIrreversible": 0,
			"after MarkIrreversible": 1,
			"after the payment":      1, "": 0} {
			b := newBank()
			w := newWorker(t, store, b.asks)
			k := "dies " + dies
			w.live(func() { _, _ = dedup.Do(t.Context(), w.d, k, b.payment(w, k, dies)) })
			next := newWorker(t, store, b.asks)
			next.deliver(k, b.payment(next, k, ""))
			next.deliver(k, b.payment(next, k, ""))
			b.want(t, k, 1, "the bank was asked when it had to be")
			assert.Equal(t, questions, b.questions, "%s: questions", k)
		}
	})
}

// wrongAnswer: the bank says that nothing was paid. It is wrong, or the payment arrives later.
func wrongAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		wrong := newBank()
		lies := func(c *dedup.Config) {
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
				return dedup.DidNotHappen(), nil
			}
		}
		w := newWorker(t, store, lies)
		w.live(func() {
			_, _ = dedup.Do(t.Context(), w.d, "lies", wrong.payment(w, "lies", "after the payment"))
		})
		next := newWorker(t, store, lies)
		next.deliver("lies", wrong.payment(next, "lies", ""))
		wrong.want(t, "lies", 2, "the resolver has said that it had not happened")

		for _, keyed := range []bool{false, true} {
			b := newBank()
			b.keyed = keyed
			k := map[bool]string{false: "late", true: "late and keyed"}[keyed]
			w := newWorker(t, store, b.asks)
			var underway string // the request that has left the process, and has not arrived
			w.live(func() {
				_, _ = dedup.Do(t.Context(), w.d, k, func(ctx context.Context) (string, error) {
					if err := dedup.MarkIrreversible(ctx); err != nil {
						return "", dedup.NotStarted(err)
					}
					a, _ := dedup.FromContext(ctx)
					underway = a.DownstreamKey("bank")
					w.die()
					return "", nil
				})
			})
			next := newWorker(t, store, b.asks)
			next.deliver(k, b.payment(next, k, "")) // the bank is asked, and has nothing
			b.pay(k, underway)
			b.want(t, k, map[bool]int{false: 2, true: 1}[keyed],
				"the first request came after the bank was asked")
			assert.Equal(t, 1, b.questions, "%s: questions", k)
		}
	})
}
