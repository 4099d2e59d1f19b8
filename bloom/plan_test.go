package bloom

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The formula fits measurements of another split-block filter, and of this one.
func TestRateAsPlanned(t *testing.T) {
	for _, c := range []struct {
		perKey, want float64
		keys, asked  int
	}{
		{16, 9.1e-4, 20_000, 100_000},
		{24, 9.1e-5, 20_000, 300_000},
	} {
		assert.LessOrEqual(t, math.Abs(blockedRate(c.perKey)/c.want-1), 0.02, "%v bits a key",
			c.perKey)
		l := newLayer(uint64(c.perKey * float64(c.keys)))
		random := rand.New(rand.NewPCG(1, 2))
		for range c.keys {
			l.add(digest{random.Uint64(), random.Uint64()})
		}
		hits := 0.0
		for range c.asked {
			if holds(l, digest{random.Uint64(), random.Uint64()}) {
				hits++
			}
		}
		want := blockedRate(c.perKey) * float64(c.asked)
		assert.LessOrEqual(t, math.Abs(hits-want), 5*math.Sqrt(want), "%v bits a key", c.perKey)
		fill, rate := l.sample()
		assert.LessOrEqual(t, math.Abs(rate/c.want-1), 0.25, "%v bits a key: sampled rate",
			c.perKey)
		assert.LessOrEqual(t, math.Abs(l.keys(fill)/float64(c.keys)-1), 0.03,
			"%v bits a key: sampled rate", c.perKey)
	}
}

// The same test for Classic, filled as it plans itself.
func TestClassicAsPlanned(t *testing.T) {
	for _, c := range []struct {
		goal, perKey float64
		hashes       int
		keys, asked  int
	}{
		{1e-3, 14.4, 10, 20_000, 100_000},
		{1e-4, 19.2, 13, 20_000, 300_000},
	} {
		p := Options{Kind: Classic}.sized(float64(c.keys), c.goal)
		assert.LessOrEqual(t, math.Abs(p.BitsPerKey-c.perKey), 0.1, "goal %v", c.goal)
		assert.Equal(t, c.hashes, p.Hashes, "goal %v", c.goal)
		assert.LessOrEqual(t, p.FalsePositives, c.goal, "goal %v", c.goal)
		assert.GreaterOrEqual(t, p.FalsePositives, 0.95*c.goal, "goal %v", c.goal)
		l := newClassic(p.Bits, p.Hashes)
		random := rand.New(rand.NewPCG(1, 2))
		for range c.keys {
			l.add(digest{random.Uint64(), random.Uint64()})
		}
		hits := 0.0
		for range c.asked {
			if l.has(digest{random.Uint64(), random.Uint64()}) {
				hits++
			}
		}
		want := p.FalsePositives * float64(c.asked)
		assert.LessOrEqual(t, math.Abs(hits-want), 5*math.Sqrt(want), "goal %v", c.goal)
		fill, rate := l.sample()
		assert.LessOrEqual(t, math.Abs(rate/c.goal-1), 0.25, "goal %v: sampled rate", c.goal)
		assert.LessOrEqual(t, math.Abs(l.keys(fill)/float64(c.keys)-1), 0.03,
			"goal %v: sampled rate", c.goal)
	}
}

func holds(l *layer, d digest) bool {
	m := d.mask()
	b := l.block(d)
	return b.half(&m) && b.rest(d)
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		kind          Kind
		slices        int
		hashes        int
		perKey, bytes float64 // bytes for each key of the window
	}{{Blocked, 4, 8, 21.6, 4.1}, {Blocked, 8, 8, 0, 3.7}, {Classic, 4, 13, 18.1, 3.4},
		{Classic, 8, 13, 0, 3.0}} {
		o := Options{Window: 10_000 * time.Second, Rate: 1000, Slices: c.slices, Kind: c.kind}
		p, err := o.Plan()
		require.NoError(t, err)
		assert.LessOrEqual(t, math.Abs(float64(p.Bytes)/1e7-c.bytes), 0.06, "%d slices", c.slices)
		assert.False(t, c.perKey > 0 && math.Abs(p.BitsPerKey-c.perKey) > 0.1,
			"%d slices: %.2f bits a key, want %v", c.slices, p.BitsPerKey, c.perKey)
		assert.LessOrEqual(t, p.FalsePositives, 1e-3, "%d slices", c.slices)
		assert.GreaterOrEqual(t, p.FalsePositives, 0.99e-3, "%d slices", c.slices)
		assert.Equal(t, c.hashes, p.Hashes, "%d slices", c.slices)
		assert.Equal(t, c.slices+2, p.Generations, "%d slices", c.slices)
		o.MaxBytes = int64(p.Bytes)
		_, err = o.Plan()
		assert.NoError(t, err)
		o.MaxBytes--
		_, err = New(o)
		assert.ErrorContains(t, err, "MaxBytes", "a plan above MaxBytes")
	}
}

func TestOptionsRefused(t *testing.T) {
	good := Options{Window: time.Hour, Rate: 10}
	for field, spoil := range map[string]func(*Options){
		"Window":         func(o *Options) { o.Window = 0 },
		"Window is 3":    func(o *Options) { o.Window = 3 },
		"Window is 2562": func(o *Options) { o.Window = math.MaxInt64 },
		"Slices":         func(o *Options) { o.Slices = 33 },
		"Slices is -":    func(o *Options) { o.Slices = -1 },
		"Rate":           func(o *Options) { o.Rate = math.NaN() },
		"Rate is +Inf":   func(o *Options) { o.Rate = math.Inf(1) },
		"Rate and":       func(o *Options) { o.Rate = 1e30 },
		"FalsePositives": func(o *Options) { o.FalsePositives = 0.2 },
		"Kind":           func(o *Options) { o.Kind = 2 },
		"MaxBytes":       func(o *Options) { o.MaxBytes = -1 },
		"Secret":         func(o *Options) { o.Secret = make([]byte, 15) },
		"KeyID":          func(o *Options) { o.KeyID = "k" },
		"KeyID has": func(o *Options) {
			o.Secret, o.KeyID = make([]byte, 16), strings.Repeat("k", 256)
		},
	} {
		o := good
		spoil(&o)
		_, err := New(o)
		assert.ErrorContains(t, err, "Options."+field)
	}
	_, err := New(good)
	assert.NoError(t, err)
}
