package torture_test

import (
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/results"
)

// soakEnv names the file of a soak's report.
const soakEnv = "ONCEWARD_TORTURE_SOAK"

// report is what a soak has counted.
type report struct {
	Area       string            `json:"area"`
	Date       string            `json:"date"`
	Machine    string            `json:"machine"`
	Versions   map[string]string `json:"versions"`
	Minutes    float64           `json:"minutes"`
	Rounds     int               `json:"rounds"`
	Messages   int               `json:"messages"`
	Deliveries int               `json:"deliveries"`
	Effects    int               `json:"effects"`
	// of which Porcupine has checked the history
	Operations  int            `json:"operations"`
	ServerKills int            `json:"server_kills"` // those of a failover included
	WorkerKills int            `json:"worker_kills"`
	Failovers   int            `json:"failovers"`
	Freezes     int            `json:"freezes"`
	Lost        int            `json:"lost"`
	Doubled     int            `json:"doubled"` // without a reason
	Explained   map[string]int `json:"explained"`
	Own         int            `json:"self_duplicates"`
	Stuck       int            `json:"stuck"`
	Before      usage          `json:"conductor_before"`
	After       usage          `json:"conductor_after"`
	Workers     int            `json:"workers"`
	// MostLeft is how many goroutines a worker had left at most after it had closed everything, not
	// counting those that it had before it opened anything.
	MostLeft int  `json:"worker_goroutines_left"`
	MostHeap int  `json:"worker_heap_kib"` // the largest at a worker's end
	OK       bool `json:"ok"`
	// Failed are the rows that failed.
	Failed []results.Row `json:"failed,omitempty"`
}

// usage is how much memory and how many goroutines a process has.
type usage struct {
	HeapKiB    int `json:"heap_kib"`
	RSSKiB     int `json:"rss_kib"`
	Goroutines int `json:"goroutines"`
}

// used returns the usage of this process, without garbage.
func used() usage {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{HeapKiB: int(m.HeapAlloc >> 10), Goroutines: runtime.NumGoroutine()}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			u.RSSKiB, _ = strconv.Atoi(fields[1])
		}
	}
	return u
}

// soak runs rounds of the rows that have a size for the profile soak, each with other seeds, until
// the time last is over.
func soak(t *testing.T, last time.Duration) {
	t.Helper()
	s := &report{Area: "torture-soak", Date: time.Now().UTC().Format(time.DateOnly),
		Versions: map[string]string{}, Explained: map[string]int{}}
	began := time.Now()
	s.Before = used()
	for time.Since(began) < last && !t.Failed() {
		s.Rounds++
		t.Run("round"+strconv.Itoa(s.Rounds), func(t *testing.T) { torture(t, "soak", s.add) })
		s.After, s.OK, s.Minutes = used(), !t.Failed(),
			time.Since(began).Round(time.Second).Minutes()
		s.write(t) // if a later round hangs, the results so far are not lost
	}
	const flat = 20 << 10 // KiB, and a fifth
	assert.False(t, s.Rounds > 1 && s.After.HeapKiB > s.Before.HeapKiB*6/5+flat,
		"the conductor had %+v, and has %+v", s.Before, s.After)
	assert.LessOrEqual(t, s.After.Goroutines, s.Before.Goroutines+5,
		"the conductor had %+v, and has %+v", s.Before, s.After)
	t.Logf("%+v", *s)
}

// add adds the result of a row.
func (s *report) add(c *conductor, row results.Row) {
	keeping.Lock()
	defer keeping.Unlock()
	s.Messages += row.Messages
	s.Deliveries += row.Deliveries
	s.Effects += row.Effects
	s.Operations += row.Operations
	s.ServerKills += row.Faults["killed"] + row.Faults["promoted"]
	s.WorkerKills += row.Deaths
	s.Failovers += row.Faults["promoted"]
	s.Freezes += row.Faults["frozen"]
	s.Lost += row.Lost
	s.Doubled += row.Doubled
	s.Own += row.SelfDuplicates
	s.Stuck += row.Stuck
	s.Workers += c.child
	s.MostLeft, s.MostHeap = max(s.MostLeft, c.mostLeft), max(s.MostHeap, c.mostHeap)
	for why, n := range row.Explained {
		s.Explained[why] += n
	}
	for what, version := range c.versions {
		s.Versions[what] = version
	}
	if !row.OK {
		s.Failed = append(s.Failed, row)
	}
}

func (s *report) write(t *testing.T) {
	t.Helper()
	s.Machine, s.Versions["go"] = results.Machine(), runtime.Version()
	name := os.Getenv(soakEnv)
	if name == "" {
		return
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(name, append(text, '\n'), 0o600)
	}
	require.NoError(t, err)
}
