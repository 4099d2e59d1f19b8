package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Front is the page of the filter.
const Front = "front.md"

// Update returns a page of docs with its tables, as results have them in a folder. Each area has a
// table in docs/benchmarks.md.
func Update(name string, page []byte, results string, areas ...string) (_ []byte, err error) {
	defer must.Catch(&err)
	file := func(area string) string { return filepath.Join(results, area+".json") }
	if name == Front {
		bloom := must.Get(harness.Read(file("bloom")))
		for _, table := range []string{"answers", "rotation", "owned", "owned CPU", "owned load",
			"layered", "front", "goals that are missed"} {
			page = replace(page, table, bloom.Area, filled(table, run{bloom}))
		}
		return page, nil
	}
	for _, area := range areas {
		page = replace(page, "table", area, table(must.Get(harness.Read(file(area)))))
	}
	var torture Torture
	if err := harness.ReadJSON(file("torture"), &torture); !errors.Is(err, os.ErrNotExist) {
		must.Do(err)
		page = replace(page, "table", torture.Area, torture.table())
	} // else there was no long run
	return page, nil
}

const end = "<!-- end of table -->"

// replace returns the page with a text between its markers: the line "what of
// bench/results/area.json", and the end.
func replace(page []byte, what, area, text string) []byte {
	begin := "<!-- " + what + " of bench/results/" + area + ".json: make bench-table -->"
	head, rest, ok := bytes.Cut(page, []byte(begin+"\n"))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	must.True(ok && closed, "report: the page has no place for the table: %s ... %s", begin, end)
	return []byte(string(head) + begin + "\n\n" + text + "\n" + end + string(tail))
}

// Torture is results/torture.json: what long runs under faults have counted, written by the
// tests that have them.
type Torture struct {
	Area, Commit, Date, Machine string
	Versions                    map[string]string
	Rows                        []TortureRow
}

// TortureRow is one scenario.
type TortureRow struct {
	Scenario, Store, Level, History string
	Porcupine                       string // its status on the histories of all keys
	Operations                      int    // of these
	Seed                            uint64
	Messages, Deliveries, Effects   int
	Lost, Stuck, Seconds            int
	Doubled                         int // without a reason
	Stale                           int // accepted from a stale epoch
	Deaths                          int // of processes, by SIGKILL
	SelfDuplicates                  int `json:"self_duplicates"`
	Faults, Explained               map[string]int
	OK                              bool
}

// table has a line per scenario.
func (t Torture) table() string {
	head := fmt.Sprintf("Commit %s, %s; %s.\n\n", t.Commit, t.Machine, cell(listed(t.Versions)))
	return head + filled("torture", t.scenarios())
}

func (t Torture) scenarios() (all []TortureRow) {
	byName := map[string][]TortureRow{}
	for _, r := range t.Rows {
		byName[r.Scenario] = append(byName[r.Scenario], r)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		stores := byName[name]
		sum := TortureRow{OK: true, Faults: map[string]int{}, Explained: map[string]int{}}
		var histories []string
		for _, r := range stores {
			sum.add(r)
			history := cmp.Or(r.Porcupine, r.History)
			if !slices.Contains(histories, history) {
				histories = append(histories, history)
			}
		}
		switch sum.Scenario = name; {
		case len(stores) > 1:
			sum.Scenario += fmt.Sprintf("; %d stores", len(stores))
		case stores[0].Store != "":
			sum.Scenario += "; " + stores[0].Store
		}
		if sum.History = strings.Join(histories, " or "); sum.Operations > 0 {
			sum.History += fmt.Sprintf(", %d operations", sum.Operations)
		}
		all = append(all, sum)
	}
	return all
}

func (r *TortureRow) add(o TortureRow) {
	sums, more := r.counts(), o.counts()
	for i, sum := range sums {
		*sum += *more[i]
	}
	r.OK = r.OK && o.OK
	for name, n := range o.Faults {
		r.Faults[name] += n
	}
	for name, n := range o.Explained {
		r.Explained[name] += n
	}
}

func (r *TortureRow) counts() []*int {
	return []*int{&r.Messages, &r.Deliveries, &r.Effects, &r.Deaths, &r.Lost, &r.Doubled, &r.Stale,
		&r.Operations}
}
