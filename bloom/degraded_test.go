package bloom

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// consumer trusts the filter: where it says ProvenNew, the effect runs without asking the store.
type consumer struct {
	f       *Filter
	store   map[[16]byte]bool // the marks, of this process and of those before it
	effects map[[16]byte]int
	asked   int
}

func (c *consumer) receive(id [16]byte) {
	answer, _ := c.f.Check(id)
	if answer != ProvenNew {
		c.asked++
		if c.store[id] {
			return
		}
	}
	c.f.Add(id)
	c.effects[id]++
	c.store[id] = true
}

// Whatever is done to the filter, each effect runs exactly once. A wrong ProvenNew would run it
// twice, and a wrong duplicate would not run it.
func TestDegraded(t *testing.T) { bothKinds(t, degraded) }

func degraded(t *testing.T) {
	const known, fresh = 2000, 4000 // ids: half of what comes is known
	for name, c := range map[string]struct {
		options func(o *Options, p Plan)
		spoil   func(t *testing.T, c *consumer) // after the known ones came
		trusts  bool                            // it still saves questions
	}{
		"sound": {nil, func(*testing.T, *consumer) {}, true},
		"ten times the plan, no memory": {func(o *Options, p Plan) {
			o.MaxBytes = int64(p.Bytes)
		}, func(_ *testing.T, c *consumer) {
			for n := range uint64(10_000) {
				c.f.Add(id(n | 1<<50))
			}
		}, true},
		"ten times the plan, grown": {func(o *Options, p Plan) {
			o.MaxBytes = int64(20 * p.Bytes)
		}, func(_ *testing.T, c *consumer) {
			for n := range uint64(10_000) {
				c.f.Add(id(n | 1<<50))
			}
		}, true},
		"emptied": {nil, func(t *testing.T, c *consumer) { c.f = mustNew(t, c.f.opts) }, false},
		"emptied, loading": {nil, func(t *testing.T, c *consumer) {
			c.f = mustNew(t, c.f.opts)
			c.f.Begin(source)
		}, false},
		"lost": {nil, func(_ *testing.T, c *consumer) { c.f.feed.Load().Lost(None) }, false},
		"expired": {nil, func(t *testing.T, c *consumer) {
			require.NoError(t, c.f.feed.Load().Open(time.Now()))
		}, false},
		"restarted from a snapshot older than the last mark": {nil, restart(nil, nil), false},
		"restarted from a damaged snapshot": {nil, restart(func(b []byte) []byte {
			return with1(b, len(b)/2, ^b[len(b)/2])
		}, nil), false},
		"restarted from a cut snapshot": {nil, restart(func(b []byte) []byte {
			return b[:len(b)/2]
		}, nil), false},
		"restarted under another secret": {nil, restart(nil, func(o *Options) {
			o.Secret = []byte("another secret!!")
		}), false},
		"restarted with other sizes": {nil, restart(nil, func(o *Options) {
			o.Rate *= 2
		}), false},
		"restarted as the other kind": {nil, restart(nil, func(o *Options) {
			o.Kind = Classic - o.Kind
		}), false},
		"restarted under another key's id": {nil, restart(nil, func(o *Options) {
			o.KeyID = "k2"
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &hand{}
			o := small(clock)
			o.Secret, o.KeyID = []byte("0123456789abcdef"), "k1"
			if c.options != nil {
				plan, err := o.Plan()
				require.NoError(t, err)
				c.options(&o, plan)
			}
			f := mustNew(t, o)
			covering(t, f)
			who := &consumer{f: f, store: map[[16]byte]bool{}, effects: map[[16]byte]int{}}
			for n := range uint64(known) {
				clock.set(time.Duration(n) * 10 * time.Millisecond)
				who.receive(id(n))
			}
			c.spoil(t, who)
			who.asked = 0
			for n := range uint64(fresh) {
				who.receive(id(n))
			}
			for n := range uint64(fresh) {
				require.Equal(t, 1, who.effects[id(n)], "the effect of %d ran", n)
			}
			assert.Equal(t, c.trusts, fresh-who.asked > 0, "%d of %d questions saved",
				fresh-who.asked, fresh)
		})
	}
}

// restart replaces the filter by one that loads a snapshot from the middle of the stream. It is
// opened although nobody has fed it the rest. This is wrong, and it saves nothing.
func restart(spoil func([]byte) []byte, other func(*Options)) func(*testing.T, *consumer) {
	return func(t *testing.T, c *consumer) {
		var b bytes.Buffer
		require.NoError(t, c.f.Save(&b))
		snapshot := b.Bytes()
		for n := range uint64(500) { // marked after it
			c.receive(id(n | 1<<45))
		}
		if spoil != nil {
			snapshot = spoil(snapshot)
		}
		o := c.f.opts
		if other != nil {
			other(&o)
		}
		c.f = mustNew(t, o)
		feed := c.f.Begin(Source{Name: "s", Epoch: 2, Seq: 9})
		_, err := c.f.Load(bytes.NewReader(snapshot), Source{Name: "s", Epoch: 2, Seq: 9})
		require.Equal(t, spoil != nil || other != nil, err != nil, err)
		require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	}
}
