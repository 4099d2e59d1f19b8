package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The results of a long run are readable, and docs/evidence/faults.md shows them in the place
// for them.
func TestTortureIsRendered(t *testing.T) {
	want := Torture{
		Area: "torture", Commit: "abc", Machine: "two processors",
		Versions: map[string]string{"redis": "7", "go": "1"},
		Rows: []TortureRow{
			{
				Scenario: "kills", Store: "redis", History: "20m0s", Messages: 1000,
				Deliveries: 2500, Effects: 1003,
				Faults: map[string]int{"stops": 2, "kills": 9, "none": 0},
				Lost:   4, Doubled: 5, Stale: 6, Deaths: 7, Explained: map[string]int{"killed": 3},
			},
			{
				Scenario: "X1", Store: "redis", Porcupine: "ok", Operations: 10, Messages: 1,
				Deliveries: 2, Effects: 3, Faults: map[string]int{"a": 1}, Deaths: 8, OK: true,
			},
			{
				Scenario: "X1", Store: "sql", Porcupine: "illegal", Operations: 20, Messages: 10,
				Deliveries: 20, Effects: 30,
				Faults: map[string]int{"a": 1, "b": 2}, Explained: map[string]int{"died": 1},
				Lost: 1, Doubled: 2, Stale: 3, Deaths: 9,
			},
		},
	}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torture.json"), text, 0o600))
	old := readFile(t, filepath.Join(docsDir, Faults))
	page, err := Update(Faults, []byte(old), dir)
	require.NoError(t, err)
	for _, line := range []string{
		"| kills; redis | 1000 | 2500 | 1003 | 7 | kills 9, stops 2 | 4 | 5 | 6 | killed 3 " +
			"| 20m0s | failed |\n",
		"| X1; 2 stores | 11 | 22 | 33 | 17 | a 2, b 2 | 1 | 2 | 3 | died 1 " +
			"| ok or illegal, 30 operations | failed |\n",
		"Commit abc, two processors; go 1, redis 7.\n",
	} {
		assert.Contains(t, string(page), line)
	}
	again, err := Update(Faults, page, dir)
	require.NoError(t, err)
	assert.Equal(t, string(page), string(again), "a second run changes the page")

	// An unknown field would be missing from the table.
	loose := []byte(`{"area": "torture", "rows": [{"loose": 1}]}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torture.json"), loose, 0o600))
	_, err = Update(Faults, page, dir)
	require.ErrorContains(t, err, "loose")
}
