package bloom

import (
	"testing"
	"time"
)

// Ten times what was planned, in memory for what was planned: hits become Unknown, misses stay a
// proof, and nothing that was fed is ever denied.
func TestSaturated(t *testing.T) { bothKinds(t, testSaturated) }

func testSaturated(t *testing.T) {
	clock := &hand{}
	o := small(clock)
	plan, err := o.Plan()
	must(t, err)
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
		} else if reason != Saturated {
			t.Fatal(answer, reason)
		}
	}
	s := f.Stats()
	if fresh == 0 || told != 1 || s.Grown != 0 || s.Bytes > uint64(o.MaxBytes) || s.Reasons[Saturated] < n || s.Estimated < 0.1 {
		t.Errorf("%d new, told %d times, %+v", fresh, told, s)
	}
	clock.move(time.Minute)
	f.Add(id(1))
	wantCheck(t, "a window later", f, 1, Maybe, None)
}

func TestGrows(t *testing.T) { bothKinds(t, testGrows) }

func testGrows(t *testing.T) {
	o := small(&hand{})
	plan, err := o.Plan()
	must(t, err)
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
	if s.Grown == 0 || s.Bytes > uint64(o.MaxBytes) || s.Estimated > 4e-3 || wrong/float64(n) > 4e-3 {
		t.Errorf("%v wrong of %d, %+v", wrong, n, s)
	}
	if got := s.KeysEstimated / float64(n); got < 0.95 || got > 1.05 {
		t.Errorf("%.0f keys estimated of %d", s.KeysEstimated, n)
	}
	if want := wrong / float64(n); s.Observed != want || s.Answers[ProvenNew] != n-uint64(wrong) {
		t.Errorf("observed %v, want %v; %+v", s.Observed, want, s)
	}
}

// Seven ids make an eighth Maybe, where the secret is known to whoever chooses them.
func TestCraftedIDs(t *testing.T) {
	public := make([]byte, 16)
	o := Options{Window: time.Hour, Rate: 0.1, Secret: public}
	victim := id(1 << 50)
	crafted := poison(mustNew(t, o), victim)
	if len(crafted) > 7 {
		t.Fatalf("%d ids", len(crafted))
	}
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
		if answer, _ := f.Check(victim); answer != want {
			t.Errorf("%s secret: the victim is %v", name, answer)
		}
	}
}

// poison searches ids that set the bits of victim, two by the first of them.
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
