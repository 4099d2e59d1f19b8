package bloom

import (
	"testing"
	"time"
)

// What an observer is told now and then is what Stats say.
func TestStateIsThatOfStats(t *testing.T) {
	f, err := New(Options{Window: time.Hour, Rate: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, reason := f.State(); reason != "not_covered" {
		t.Errorf("reason %q", reason)
	}
	for i := range 1000 {
		f.Add([16]byte{byte(i), byte(i >> 8)})
	}
	f.Wrong(1)
	fill, estimated, observed, _ := f.State()
	if s := f.Stats(); fill != s.Fill || fill == 0 || estimated != s.Estimated || observed != s.Observed || observed != 1 {
		t.Errorf("fill %v, estimated %v, observed %v, and Stats %+v", fill, estimated, observed, s)
	}
}
