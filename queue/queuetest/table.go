package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// result is what a row has counted.
type result struct {
	ids, messages, runs, lost, doubled, explained int
}

// table has the results of a suite's rows.
type table struct {
	mu   sync.Mutex
	rows map[string]result
}

// keep keeps the result of a row.
func (tb *table) keep(row string, tr *trial) {
	r := tr.result()
	if r.ids < tr.q.IDs {
		tr.Errorf("queuetest: the row had %d ids, not %d", r.ids, tr.q.IDs)
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows[row] = r
}

// log prints the table, in the order of rows.
func (tb *table) log(t testing.TB, rows []row) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	text := "| fault | ids | messages | runs | lost | doubled | explained |\n|---|---|---|---|---|---|---|"
	for _, row := range rows {
		if r, ok := tb.rows[row.name]; ok {
			text += fmt.Sprintf("\n| %s | %d | %d | %d | %d | %d | %d |",
				strings.ReplaceAll(row.name, "_", " "), r.ids, r.messages, r.runs, r.lost,
				r.doubled, r.explained)
		}
	}
	t.Logf("queuetest: the fault table\n%s", text)
}

// result counts the ids and effects of the row. explained counts the doubled effects that a kill or
// an outage explains.
func (tr *trial) result() (r result) {
	r.lost = tr.lost()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	r.ids, r.messages, r.runs = len(tr.sent), tr.messages, tr.runs
	for id, n := range tr.effects {
		if n > 1 {
			r.doubled++
		}
		if n > 1 && n <= 1+tr.excused[id] {
			r.explained++
		}
	}
	return r
}

// without returns the ids that have had no effect.
func (tr *trial) without() (ids []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for id := range tr.sent {
		if tr.effects[id] == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// lost counts the ids that have had no effect, and were not parked.
func (tr *trial) lost() (n int) {
	without := tr.without()
	if len(without) == 0 {
		return 0
	}
	gone := tr.gone()
	for _, id := range without {
		if gone[id] == 0 {
			n++
		}
	}
	return n
}

// gone are the messages that were parked.
func (tr *trial) gone() map[string]int {
	gone := map[string]int{}
	if tr.q.Parked != nil {
		for _, id := range tr.q.Parked(tr.TB) {
			gone[id]++
		}
		return gone
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for id, n := range tr.parked {
		gone[id] = n
	}
	return gone
}

// report fails the test for effects that nothing explains, and for deliveries that were wrong.
func (tr *trial) report() {
	tr.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var doubled []string
	for id, n := range tr.effects {
		if n > 1+tr.excused[id] {
			doubled = append(doubled, fmt.Sprintf("%s (%d)", id, n))
		}
	}
	if slices.Sort(doubled); len(doubled) > 0 {
		tr.Errorf("queuetest: effects that happened again, and neither a kill nor an outage explains"+
			" it: %s", strings.Join(doubled[:min(len(doubled), 10)], ", "))
	}
	for _, fault := range tr.faults {
		tr.Errorf("queuetest: %s", fault)
	}
}
