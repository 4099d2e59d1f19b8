package harness

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestResultsRoundTrip(t *testing.T) {
	want := Results{
		Area: "redis", Commit: "abc", Date: "2026-01-02", Machine: "2 cores",
		Versions: map[string]string{"go": "1.26"},
		Rows: []Row{{
			Name: "batch", Value: 1.5, Unit: "keys/s", Against: "raw", AgainstValue: 2, Ratio: 0.75,
			Spread: [2]float64{0.5, 1}, Rounds: 7,
			Goal: ">= 0.85x", OK: false, Workload: "batch", Side: "onceward", X: 256, ClientUS: 1,
			ServerUS: 2, Allocs: 3, P50Micros: 4, P99Micros: 5,
		}},
		LeftOut: []string{"this"},
	}
	path := filepath.Join(t.TempDir(), "new", "redis.json")
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Other tools read these names, in this order.
	last := -1
	for _, name := range []string{"area", "commit", "date", "machine", "versions", "rows", "name",
		"value", "unit", "against", "against_value", "ratio", "spread", "rounds", "goal", "ok"} {
		at := strings.Index(string(data[last+1:]), `"`+name+`"`)
		if at < 0 {
			t.Fatalf("no %q after byte %d of\n%s", name, last, data)
		}
		last += at + 1
	}
	if !strings.Contains(string(data), `">= 0.85x"`) {
		t.Error("the goal is escaped")
	}
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(`{"area":"redis","rows":[{"nome":"x"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "nome") {
		t.Errorf("error %v, want one that names the field", err)
	}
}
