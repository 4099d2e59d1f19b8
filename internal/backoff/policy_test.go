package backoff_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
)

var kinds = []backoff.Kind{backoff.Full, backoff.Equal, backoff.Decorrelated}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// steps is a source that counts up. Started at zero it makes every draw the lower end
// of its range (a draw that rejects the zero as biased takes the one that follows).
type steps uint64

func (s *steps) Uint64() uint64 {
	v := uint64(*s)
	*s++
	return v
}

// ones is a source that makes every draw the upper end of its range.
type ones struct{}

func (ones) Uint64() uint64 { return math.MaxUint64 }

func lowest() *rand.Rand  { return rand.New(new(steps)) }
func highest() *rand.Rand { return rand.New(ones{}) }

// window is base*2^attempt capped, computed the slow way: one doubling at a time.
func window(base, limit time.Duration, attempt int) time.Duration {
	for range attempt {
		if base >= limit {
			return limit
		}
		if base > math.MaxInt64/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}

func TestDelayStaysInsideTheFormula(t *testing.T) {
	policies := []backoff.Policy{
		{Base: time.Millisecond, Cap: time.Second},
		{Base: 7, Cap: 1001},
		{Base: 1, Cap: 1},
		{Base: 3 * time.Second, Cap: math.MaxInt64},
		{Base: math.MaxInt64, Cap: math.MaxInt64},
	}
	for _, p := range policies {
		for attempt := range 201 {
			w := window(p.Base, p.Cap, attempt)
			p.Kind = backoff.Full
			low, high := p.Delay(attempt, 0, lowest()), p.Delay(attempt, 0, highest())
			require.Zero(t, low, "%+v attempt %d: full ranges over [%d, %d]", p, attempt, low, high)
			require.Equal(t, w, high, "%+v attempt %d: full ranges over [%d, %d]", p, attempt, low,
				high)
			p.Kind = backoff.Equal
			low, high = p.Delay(attempt, 0, lowest()), p.Delay(attempt, 0, highest())
			require.Equal(t, w/2, low, "%+v attempt %d: equal ranges over [%d, %d]", p, attempt,
				low, high)
			require.Equal(t, w/2*2, high, "%+v attempt %d: equal ranges over [%d, %d]", p, attempt,
				low, high)
		}
	}
}

func TestDelayOfEveryAttemptIsBounded(t *testing.T) {
	rnd := seeded()
	for _, kind := range kinds {
		p := backoff.Policy{Base: 10 * time.Millisecond, Cap: 5 * time.Second, Kind: kind}
		var prev time.Duration
		for attempt := range 201 {
			for range 50 {
				d := p.Delay(attempt, prev, rnd)
				require.GreaterOrEqual(t, d, time.Duration(0),
					"%v attempt %d: outside of the policy", kind, attempt)
				require.LessOrEqual(t, d, p.Cap, "%v attempt %d: outside of the policy", kind,
					attempt)
				require.False(t, kind == backoff.Decorrelated && d < p.Base,
					"%v attempt %d: %v is outside of the policy", kind, attempt, d)
				prev = d
			}
		}
	}
}

func TestDecorrelatedGrowsFromThePreviousDelay(t *testing.T) {
	p := backoff.Policy{Base: 100, Cap: 1000, Kind: backoff.Decorrelated}
	for _, row := range []struct {
		prev, low, high time.Duration
	}{
		{0, 100, 300},
		{-5, 100, 300},
		{100, 100, 300},
		{200, 100, 600},
		{333, 100, 999},
		{334, 100, 1000},
		{1000, 100, 1000},
		{math.MaxInt64, 100, 1000},
	} {
		low, high := p.Delay(0, row.prev, lowest()), p.Delay(0, row.prev, highest())
		assert.Equal(t, row.low, low, "prev %d: ranges over [%d, %d]", row.prev, low, high)
		assert.Equal(t, row.high, high, "prev %d: ranges over [%d, %d]", row.prev, low, high)
	}
}

func TestDelayNeverOverflows(t *testing.T) {
	for _, kind := range kinds {
		for _, base := range []time.Duration{1, 3, time.Second, math.MaxInt64/3 + 1,
			math.MaxInt64/2 + 1, math.MaxInt64} {
			p := backoff.Policy{Base: base, Cap: math.MaxInt64, Kind: kind}
			for _, attempt := range []int{0, 1, 31, 32, 61, 62, 63, 64, 65, 200, math.MaxInt32,
				math.MaxInt} {
				for _, rnd := range []*rand.Rand{lowest(), highest()} {
					require.GreaterOrEqual(t, p.Delay(attempt, base, rnd), time.Duration(0),
						"%+v attempt %d", p, attempt)
				}
			}
		}
	}
}

// The mean tells a uniform draw from one that is cut off or piles up at an end.
func TestDelaysAreSpreadEvenly(t *testing.T) {
	const draws = 20000
	limit, base := time.Second, time.Millisecond
	for _, row := range []struct {
		kind backoff.Kind
		prev time.Duration
		mean time.Duration
	}{
		{backoff.Full, 0, limit / 2},
		{backoff.Equal, 0, 3 * limit / 4},
		{backoff.Decorrelated, 100 * time.Millisecond, (base + 300*time.Millisecond) / 2},
	} {
		p, rnd := backoff.Policy{Base: base, Cap: limit, Kind: row.kind}, seeded()
		var sum time.Duration
		var quarters [4]int
		for range draws {
			d := p.Delay(20, row.prev, rnd)
			sum += d
			quarters[min(3, 4*d/limit)]++
		}
		got := sum / draws
		assert.GreaterOrEqual(t, got, row.mean*97/100, "%v: mean, want %v within 3 %%", row.kind,
			row.mean)
		assert.LessOrEqual(t, got, row.mean*103/100, "%v: mean, want %v within 3 %%", row.kind,
			row.mean)
		if row.kind != backoff.Full {
			continue
		}
		for i, n := range quarters {
			assert.GreaterOrEqual(t, n, draws/4*95/100, "%v: quarter %d holds %d of %d draws",
				row.kind, i, n, draws)
			assert.LessOrEqual(t, n, draws/4*105/100, "%v: quarter %d holds %d of %d draws",
				row.kind, i, n, draws)
		}
	}
}

func TestZeroPolicy(t *testing.T) {
	var p backoff.Policy
	require.NoError(t, p.Validate())
	assert.Equal(t, backoff.DefaultBase, p.Delay(0, 0, highest()), "first delay")
	assert.Equal(t, backoff.DefaultCap, p.Delay(100, 0, highest()), "last delay")
	for range 100 {
		got := p.Delay(0, 0, nil)
		assert.GreaterOrEqual(t, got, time.Duration(0), "global source")
		assert.LessOrEqual(t, got, backoff.DefaultBase, "global source")
	}
}

func TestHalfSetPolicy(t *testing.T) {
	small := backoff.Policy{Cap: time.Millisecond}
	assert.Equal(t, time.Millisecond, small.Delay(0, 0, highest()),
		"a Cap below the default Base: delay")
	assert.NoError(t, small.Validate(), "a Cap below the default Base: delay")
	large := backoff.Policy{Base: time.Hour}
	assert.Equal(t, time.Hour, large.Delay(3, 0, highest()), "a Base above the default Cap: delay")
	assert.NoError(t, large.Validate(), "a Base above the default Cap: delay")
}

func TestBadPolicies(t *testing.T) {
	for _, row := range []struct {
		name  string
		p     backoff.Policy
		field string
	}{
		{"negative base", backoff.Policy{Base: -1}, "Base"},
		{"negative cap", backoff.Policy{Cap: -1}, "Cap"},
		{"base above cap", backoff.Policy{Base: 2, Cap: 1}, "Base"},
		{"unknown kind", backoff.Policy{Kind: 3}, "Kind"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := row.p.Validate()
			if assert.Error(t, err, "Validate") {
				assert.True(t, strings.HasPrefix(err.Error(), "backoff: "),
					"Validate: %v, want an error that names %s", err, row.field)
				assert.Contains(t, err.Error(), row.field, "Validate")
			}
			for _, attempt := range []int{math.MinInt, -1, 0, 70} {
				d := row.p.Delay(attempt, 0, highest())
				assert.Positive(t, d, "attempt %d: delay: a loop would be busy, or hang", attempt)
				assert.LessOrEqual(t, d, backoff.DefaultCap,
					"attempt %d: delay: a loop would be busy, or hang", attempt)
			}
		})
	}
}

func TestNegativeAttemptIsTheFirst(t *testing.T) {
	p := backoff.Policy{Base: time.Second, Cap: time.Minute}
	assert.Equal(t, time.Second, p.Delay(-7, 0, highest()), "delay")
}

func TestKindNames(t *testing.T) {
	for kind, want := range map[backoff.Kind]string{
		backoff.Full: "full", backoff.Equal: "equal", backoff.Decorrelated: "decorrelated",
		9: "Kind(9)",
	} {
		assert.Equal(t, want, kind.String())
	}
}

func BenchmarkDelay(b *testing.B) {
	for _, kind := range kinds {
		b.Run("kind="+kind.String(), func(b *testing.B) {
			p := backoff.Policy{Kind: kind}
			b.ReportAllocs()
			var prev time.Duration
			for b.Loop() {
				prev = p.Delay(5, prev, nil)
			}
		})
	}
}
