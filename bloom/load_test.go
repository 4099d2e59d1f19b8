package bloom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A filter gets ten times as many keys as its memory was planned for. Hits become Unknown, misses
// are still proofs, and no key that was fed is reported as new.
func TestSaturated(t *testing.T) { bothKinds(t, testSaturated) }

func testSaturated(t *testing.T) {
	clock := &hand{}
	o := small(clock)
	plan, err := o.Plan()
	require.NoError(t, err)
	o.MaxBytes = int64(plan.Bytes)
	told := 0
	o.OnEvent = func(e Event) {
		if e.Kind == SaturatedNow {
			told++
		}
	}
	f := mustNew(t, o)
	covering(t, f)
	n := 10 * plan.SliceKeys
	for i := range n {
		f.Add(id(i))
	}
	for i := range n {
		wantCheck(t, "fed", f, i, Unknown, Saturated)
	}
	fresh := 0
	for i := range n {
		if answer, reason := f.Check(id(i | 1<<40)); answer == ProvenNew {
			fresh++
		} else {
			require.Equal(t, Saturated, reason)
		}
	}
	s := f.Stats()
	assert.NotZero(t, fresh)
	assert.Equal(t, 1, told)
	assert.Zero(t, s.Grown)
	assert.LessOrEqual(t, s.Bytes, uint64(o.MaxBytes))
	assert.GreaterOrEqual(t, s.Reasons[Saturated], n)
	assert.GreaterOrEqual(t, s.Estimated, 0.1)
	clock.move(time.Minute)
	f.Add(id(1))
	wantCheck(t, "a window later", f, 1, Maybe, None)
}

func TestGrows(t *testing.T) { bothKinds(t, testGrows) }

func testGrows(t *testing.T) {
	o := small(&hand{})
	plan, err := o.Plan()
	require.NoError(t, err)
	o.MaxBytes = int64(8 * plan.Bytes)
	f := mustNew(t, o)
	covering(t, f)
	n := 10 * plan.SliceKeys
	for i := range n {
		f.Add(id(i))
	}
	wrong := 0.0
	for i := range n {
		wantCheck(t, "fed", f, i, Maybe, None)
		if answer, _ := f.Check(id(i | 1<<40)); answer == Maybe {
			wrong++
			f.Wrong(1)
		}
	}
	s := f.Stats()
	assert.NotZero(t, s.Grown)
	assert.LessOrEqual(t, s.Bytes, uint64(o.MaxBytes))
	assert.LessOrEqual(t, s.Estimated, 4e-3)
	assert.LessOrEqual(t, wrong/float64(n), 4e-3)
	got := s.KeysEstimated / float64(n)
	assert.GreaterOrEqual(t, got, 0.95, "%.0f keys estimated of %d", s.KeysEstimated, n)
	assert.LessOrEqual(t, got, 1.05, "%.0f keys estimated of %d", s.KeysEstimated, n)
	assert.Equal(t, wrong/float64(n), s.Observed)
	assert.Equal(t, n-uint64(wrong), s.Answers[ProvenNew])
}

// Seven chosen ids make the filter answer Maybe for an eighth, if their author knows the secret.
func TestCraftedIDs(t *testing.T) {
	public := make([]byte, 16)
	o := Options{Window: time.Hour, Rate: 0.1, Secret: public}
	victim := id(1 << 50)
	crafted := poison(mustNew(t, o), victim)
	require.LessOrEqual(t, len(crafted), 7)
	for name, want := range map[string]Answer{"public": Maybe, "random": ProvenNew} {
		mine := o
		if name == "random" {
			mine.Secret = nil
		}
		f := mustNew(t, mine)
		covering(t, f)
		for _, c := range crafted {
			f.Add(c)
		}
		answer, _ := f.Check(victim)
		assert.Equal(t, want, answer, "%s secret: the victim", name)
	}
}

// poison finds ids that set the bits of victim. The first of them sets two.
func poison(f *Filter, victim [16]byte) (ids [][16]byte) {
	l, target := newLayer(f.plan.Bits), f.secret.id(victim)
	for n := uint64(0); !holds(l, target); n++ {
		d := f.secret.id(id(n))
		need := 1
		if len(ids) == 0 {
			need = 2
		}
		if l.gains(target, d) >= need {
			ids = append(ids, id(n))
			l.add(d)
		}
	}
	return ids
}

// gains counts the bits of target that d would set and that are not set.
func (l *layer) gains(target, d digest) (n int) {
	words := l.block(target)
	if words != l.block(d) {
		return 0
	}
	for i := range words {
		a, b := target.bits>>(6*i)&63, d.bits>>(6*i)&63
		if a == b && words[i].Load()>>a&1 == 0 {
			n++
		}
	}
	return n
}
