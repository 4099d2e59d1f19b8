//go:build browser

package console_test

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/console"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// traffic is the work of two Dedupers over the store in memory, in fake time. A sender delivers
// webhooks, and repeats those that were not answered by the schedule of Standard Webhooks. A topic
// is redelivered after crashes and rebalances. Only this work is counted.
type traffic struct {
	t        *testing.T
	random   *rand.Rand
	webhooks *dedup.Deduper
	orders   *dedup.Deduper
	due      agenda
	offset   int64
	era      int32
	recent   []order // of the topic, for replays
	store    *listing
}

type order struct {
	key    string
	origin driver.Origin
}

type appointment struct {
	at time.Time
	do func()
}

// agenda is a heap of future events.
type agenda []appointment

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

func (tr *traffic) in(d time.Duration, do func()) {
	heap.Push(&tr.due, appointment{time.Now().Add(d), do})
}

// schedule has the time that the sender of a webhook waits before each next attempt.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// deliver sends a webhook; its answer may get lost.
func (tr *traffic) deliver(key string, attempt int, payload []byte) {
	ctx := context.Background()
	c, err := tr.webhooks.Claim(ctx, key, dedup.WithFingerprint(payload))
	if err == nil && c.Outcome == dedup.Acquired {
		tr.in(time.Duration(50+tr.random.IntN(400))*time.Millisecond, func() {
			_ = c.Complete(ctx, nil)
		})
	}
	lost := 0.03
	if attempt > 0 {
		lost = 0.55 // a receiver that did not answer once is in trouble
	}
	if attempt < len(schedule) && tr.random.Float64() < lost {
		tr.in(schedule[attempt], func() { tr.deliver(key, attempt+1, payload) })
	}
	switch roll := tr.random.Float64(); {
	case attempt == 0 && roll < 0.004: // sent twice at once
		tr.in(20*time.Millisecond, func() { tr.deliver(key, len(schedule), payload) })
	case attempt == 0 && roll < 0.0045: // the id is used again, for another payload
		tr.in(time.Minute, func() { tr.deliver(key, len(schedule), append(payload, '!')) })
	}
}

// consume is one message of the topic.
func (tr *traffic) consume(o order) {
	_, _ = dedup.Do(context.Background(), tr.orders, o.key,
		func(ctx context.Context) (string, error) {
			roll := tr.random.Float64()
			if roll > 0.00006 {
				return "ok", nil
			}
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return "", err
			}
			return "", errors.New("the provider did not answer")
		}, func(r *dedup.Request) { r.Origin = o.origin })
	tr.recent = append(tr.recent, o)
	tr.recent = tr.recent[max(0, len(tr.recent)-60):]
}

// run lets some hours pass.
func (tr *traffic) run(hours int) {
	end := time.Now().Add(time.Duration(hours) * time.Hour)
	var webhook, message, crash func()
	n := 0
	webhook = func() {
		n++
		key := fmt.Sprintf("msg_%08d", n)
		tr.deliver(key, 0, []byte(key))
		tr.in(time.Duration(tr.random.ExpFloat64()*float64(1500*time.Millisecond)), webhook)
	}
	message = func() {
		tr.offset++
		tr.consume(order{fmt.Sprint("order-", tr.offset),
			driver.Origin{Source: "orders", Partition: 2, Offset: tr.offset, Generation: tr.era}})
		tr.in(time.Duration(tr.random.ExpFloat64()*float64(700*time.Millisecond)), message)
	}
	crash = func() {
		if tr.random.IntN(3) == 0 {
			tr.era++ // a rebalance
		}
		for _, o := range append([]order(nil),
			tr.recent[len(tr.recent)-min(len(tr.recent), 10+tr.random.IntN(50)):]...) {
			o.origin.Generation = tr.era
			tr.consume(o)
		}
		tr.in(time.Duration(2+tr.random.IntN(9))*time.Minute, crash)
	}
	tr.in(0, webhook)
	tr.in(time.Duration(hours-2)*time.Hour, message)
	tr.in(time.Duration(hours-2)*time.Hour+3*time.Minute, crash)
	for len(tr.due) > 0 {
		next := heap.Pop(&tr.due).(appointment)
		if next.at.After(end) {
			break
		}
		time.Sleep(time.Until(next.at))
		next.do()
	}
}

// listing is the store in memory. It lists the keys that are not done.
type listing struct {
	dedup.Store
	mu  sync.Mutex
	ids map[driver.ID]bool
}

func (l *listing) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := l.Store.Claim(ctx, reqs)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range reqs {
		if answers[i].Outcome == dedup.Acquired {
			l.ids[reqs[i].ID] = true
		}
	}
	return answers
}

func (l *listing) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := l.Store.Finish(ctx, changes)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range changes {
		if answers[i].Record.State == driver.StateSucceeded {
			delete(l.ids, changes[i].ID)
		}
	}
	return answers
}

func (l *listing) Keys(ctx context.Context, _ string, _ int, states []driver.State,
	each func(driver.ID, dedup.Record)) (string, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.ids {
		r := l.Store.Lookup(ctx, []driver.ID{id})[0].Record
		for _, s := range states {
			if r.State == s {
				each(id, r)
			}
		}
	}
	return "", 0, nil
}

// pages are what a console shows after two and a half days of traffic, by their names.
func pages(t *testing.T, names ...string) map[string]*httptest.ResponseRecorder {
	t.Helper()
	got := map[string]*httptest.ResponseRecorder{}
	synctest.Test(t, func(t *testing.T) {
		store := &listing{Store: dedup.Memory(1_000_000), ids: map[driver.ID]bool{}}
		c, err := console.New(console.Options{Store: store, Name: "Shop, production",
			Namespace: "orders"})
		require.NoError(t, err)
		open := func(name string, window time.Duration) *dedup.Deduper {
			observer, err := c.Observer(name, window)
			require.NoError(t, err)
			d, err := dedup.New(store, dedup.Config{Namespace: name, Window: window,
				LeaseTTL: 30 * time.Second, Observer: observer})
			require.NoError(t, err)
			return d
		}
		tr := &traffic{t: t, random: rand.New(rand.NewPCG(7, 9)),
			webhooks: open("webhooks", 48*time.Hour), orders: open("orders", 8*24*time.Hour),
			era: 1, store: store}
		tr.run(60)
		for _, name := range names {
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+name, nil))
			got[name] = w
		}
		assert.NoError(t, errors.Join(tr.webhooks.Close(t.Context()),
			tr.orders.Close(t.Context())))
	})
	return got
}
