package dedup_test

import (
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// A caller can read the Config in force from a Deduper, defaults included, and cannot change it
// through the copy that it gets.
func TestConfigShowsWhatIsInForce(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "ns", Window: time.Hour, LeaseTTL: time.Second, SeenOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	got := d.Config()
	if got.Namespace != "ns" || got.Window != time.Hour || got.LeaseTTL != time.Second || !got.SeenOnly {
		t.Errorf("what was given is not there: %+v", got)
	}
	if got.Hold != time.Hour || got.ResultLimit != 256<<10 || got.StoreTimeout != time.Second/3 || got.MaxWaiters != 1000 || got.Logger == nil {
		t.Errorf("defaults are not filled in: %+v", got)
	}
	got.Window = time.Minute
	if again := d.Config(); again.Window != time.Hour {
		t.Errorf("a change of the copy is in force: %v", again.Window)
	}
}
