package harness

import "testing"

func TestRecent(t *testing.T) {
	const n, gap = 20_000, 128
	for _, share := range []int{0, 50, 90} {
		at := make(map[string]int)
		repeated := 0
		for i, key := range Recent(n, share, gap) {
			if _, known := at[key]; known {
				repeated++
			} else {
				at[key] = i
			}
			if first := at[key]; first != i && i-first < gap {
				t.Fatalf("key %d repeats %d after %d", i, first, i-first)
			}
		}
		if got := 100 * float64(repeated) / (n - gap); got < float64(share)-2 ||
			got > float64(share)+2 {
			t.Errorf("%v %% duplicates, want %d", got, share)
		}
	}
}
