package harness

import (
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"nothing", nil, 0},
		{"one", []float64{3}, 3},
		{"odd", []float64{9, 1, 5}, 5},
		{"even is the mean of the middle", []float64{8, 2, 4, 1}, 3},
		{"an outlier moves nothing", []float64{1, 2, 1000}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.in)
			if got := Median(c.in); got != c.want {
				t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
			}
			if !slices.Equal(before, c.in) {
				t.Errorf("the argument was changed: %v", c.in)
			}
		})
	}
}

// The median of ratios is not the ratio of medians: here the machine slowed down in the
// second and third rounds, and the sides were equal in each.
func TestPaired(t *testing.T) {
	ratios := Paired([]float64{100, 50, 40}, []float64{100, 50, 40})
	if !slices.Equal(ratios, []float64{1, 1, 1}) {
		t.Errorf("ratios %v, want ones", ratios)
	}
	if got := Paired([]float64{1, 2, 3}, []float64{2, 0}); !slices.Equal(got, []float64{0.5}) {
		t.Errorf("a round without a reference: %v, want one ratio", got)
	}
	if got := Spread([]float64{2, 0.5, 1}); got != [2]float64{0.5, 2} {
		t.Errorf("spread %v", got)
	}
	if got := Spread(nil); got != [2]float64{} {
		t.Errorf("spread of nothing %v", got)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		share float64
		want  time.Duration
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := Percentile(hundred, c.share); got != c.want {
			t.Errorf("Percentile(%v) = %d, want %d", c.share, got, c.want)
		}
	}
	if got := Percentile([]time.Duration{7}, 0.99); got != 7 {
		t.Errorf("of one: %d", got)
	}
	if got := Percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestPercentilesLeaveOutWhatWasNotMeasured(t *testing.T) {
	p50, p99 := percentiles([]time.Duration{0, 3000, 0, 1000, 2000})
	if p50 != 2 || p99 != 3 {
		t.Errorf("p50 %v us, p99 %v us, want 2 and 3", p50, p99)
	}
}

func TestGoal(t *testing.T) {
	for _, c := range []struct {
		goal         Goal
		value, ratio float64
		text         string
		ok           bool
	}{
		{Goal{}, 1, 0, "", true},
		{AtLeast(0.85, 0.92), 0, 0.85, ">= 0.85x (stretch 0.92x)", true},
		{AtLeast(0.85, 0.92), 0, 0.849, ">= 0.85x (stretch 0.92x)", false},
		{AtMost(1.6, 0), 0, 1.6, "<= 1.6x", true},
		{AtMost(1.6, 0), 0, 1.61, "<= 1.6x", false},
		{ValueAtMost(10, 9, "B"), 10.1, 0.01, "<= 10 B (stretch 9 B)", false},
		{ValueAtMost(0, 0, "allocations"), 0, 0, "<= 0 allocations", true},
		{ValueAtMost(0, 0, "allocations"), 1, 0, "<= 0 allocations", false},
	} {
		if got := c.goal.String(); got != c.text {
			t.Errorf("text %q, want %q", got, c.text)
		}
		if got := c.goal.Reached(c.value, c.ratio); got != c.ok {
			t.Errorf("%q reached by value %v, ratio %v: %v, want %v", c.text,
				c.value, c.ratio, got, c.ok)
		}
	}
}
