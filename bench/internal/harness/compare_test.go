package harness

import (
	"context"
	"testing"
	"time"
)

// The rate of who does the work of two sides one after the other, and not that of one of them.
func TestBesideTwoTogether(t *testing.T) {
	var order []string
	known := Row{Name: "known when it was opened"}
	group := Group{Open: func(_ context.Context, s *Setup) error {
		*s = Setup{
			Sides: []Side{scripted("both", &order, 30), scripted("one", &order, 100),
				scripted("other", &order, 50), scripted("none", &order, 0)},
			Pairs: []Pair{{Side: "both", Against: "one", And: "other"},
				{Side: "both", Against: "one", And: "none"}},
			Rows: []Row{known},
		}
		return nil
	}}
	rows, err := Runner{Rounds: 1, MaxKeys: 10, Budget: time.Second}.Run(t.Context(),
		[]Group{group})
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.AgainstValue < 33.3 || r.AgainstValue > 33.4 || r.Ratio < 0.899 ||
		r.Ratio > 0.901 {
		t.Errorf("beside 1/(1/100 + 1/50): %+v", r)
	}
	if r := rows[1]; r.Ratio != 0 || r.AgainstValue != 0 {
		t.Errorf("a side that did nothing gives no ratio: %+v", r)
	}
	if last := rows[len(rows)-1]; last != known {
		t.Errorf("the last row is %+v", last)
	}
}

// A side that needs more keys than others does not make them take as many.
func TestLeastKeysOfASide(t *testing.T) {
	sizes := make(map[string]int)
	side := func(name string, least int) Side {
		return Side{Name: name, MinKeys: least, Run: func(_ context.Context, t *Timing) error {
			sizes[name] = len(t.Keys)
			return nil
		}}
	}
	group := Group{Open: func(_ context.Context, s *Setup) error {
		*s = Setup{Sides: []Side{side("few", 0), side("many", 500)}}
		return nil
	}}
	if _, err := (Runner{Rounds: 1, MaxKeys: 10, Budget: time.Nanosecond}).Run(t.Context(),
		[]Group{group}); err != nil {
		t.Fatal(err)
	}
	if sizes["few"] > 10 || sizes["many"] != 500 {
		t.Errorf("%v keys", sizes)
	}
}
