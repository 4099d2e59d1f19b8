package demo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/demo/stream"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

func produced(ids ...string) []stream.Message {
	messages := make([]stream.Message, len(ids))
	for i, id := range ids {
		messages[i].ID = id
	}
	return messages
}

func TestJudge(t *testing.T) {
	before := func(id string) crash {
		return crash{worker: "w1", point: worker.BeforeEffect, id: id}
	}
	after := func(id string) crash { return crash{worker: "w1", point: worker.AfterEffect, id: id} }
	all := func(n int) map[string]int { return map[string]int{"a": n, "b": n} }
	for _, test := range []struct {
		name    string
		comp    worker.Composition
		ledger  map[string]int
		crashes []crash

		lost, doubled, unexplained, strange int
		kept                                bool
	}{
		{name: "atomic once", comp: worker.Atomic, ledger: all(1),
			crashes: []crash{before("a"), after("b")}, kept: true},
		{name: "atomic lost", comp: worker.Atomic, ledger: map[string]int{"a": 1}, lost: 1},
		{name: "atomic lost by a crash", comp: worker.Atomic, ledger: map[string]int{"a": 1},
			crashes: []crash{before("b")}, lost: 1},
		{name: "a crash does not excuse atomic", comp: worker.Atomic,
			ledger: map[string]int{"a": 2, "b": 1}, crashes: []crash{after("a")}, doubled: 1},
		{name: "atomic from nowhere", comp: worker.Atomic,
			ledger: map[string]int{"a": 1, "b": 1, "c": 1}, strange: 1},
		{name: "claimed once", comp: worker.Claimed, ledger: all(1), crashes: []crash{after("a")},
			kept: true},
		{name: "claimed doubled by its crash", comp: worker.Claimed,
			ledger: map[string]int{"a": 2, "b": 1}, crashes: []crash{after("a")}, doubled: 1,
			kept: true},
		{name: "claimed doubled by the crash of another id", comp: worker.Claimed,
			ledger: map[string]int{"a": 2, "b": 1}, crashes: []crash{after("b")}, doubled: 1,
			unexplained: 1},
		{name: "claimed doubled by a crash before the effect", comp: worker.Claimed,
			ledger: map[string]int{"a": 2, "b": 1}, crashes: []crash{before("a")}, doubled: 1,
			unexplained: 1},
		{name: "one crash explains one more effect", comp: worker.Claimed,
			ledger: map[string]int{"a": 4, "b": 1}, crashes: []crash{after("a")}, doubled: 1,
			unexplained: 2},
		{name: "two crashes explain two", comp: worker.Claimed,
			ledger: map[string]int{"a": 3, "b": 1}, crashes: []crash{after("a"), after("a")},
			doubled: 1, kept: true},
		{name: "claimed lost", comp: worker.Claimed, ledger: map[string]int{"b": 1},
			crashes: []crash{before("a")}, lost: 1},
		{name: "claimed from nowhere", comp: worker.Claimed,
			ledger: map[string]int{"a": 1, "b": 1, "z": 1}, strange: 1},
		{name: "naive promises nothing", comp: worker.Naive, ledger: map[string]int{"b": 5},
			crashes: []crash{before("a")}, lost: 1, doubled: 1, unexplained: 4, kept: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			// "a" was produced twice
			v := judge(test.comp, produced("a", "b", "a"), test.ledger, test.crashes)
			got := [...]int{v.unique, len(v.lost), len(v.doubled), v.unexplained(), len(v.strange)}
			want := [...]int{2, test.lost, test.doubled, test.unexplained, test.strange}
			assert.Equal(t, want, got,
				"unique, lost, doubled, unexplained, strange = %v, kept %v; want %v, %v", got,
				v.kept(), want, test.kept)
			assert.Equal(t, test.kept, v.kept(),
				"unique, lost, doubled, unexplained, strange = %v, kept %v; want %v, %v", got,
				v.kept(), want, test.kept)
			assert.NotEqual(t, test.kept, strings.Contains(v.finding(), "BROKE"),
				"finding %q, kept %v", v.finding(), test.kept)
		})
	}
}

// TestReport checks the report that a person reads: it has every doubled and lost id with its
// reason, in lines that fit a terminal.
func TestReport(t *testing.T) {
	crashes := []crash{
		{"w1", worker.AfterEffect, "pay-1", 1_500_000_000},
		{"w2", worker.BeforeEffect, "pay-2", 2_500_000_000},
	}
	var columns []column
	for _, c := range []worker.Composition{worker.Atomic, worker.Claimed, worker.Naive} {
		count := map[string]int{"pay-1": 2, "pay-3": 3, "ghost": 1}
		columns = append(columns,
			column{judgment: judge(c, produced("pay-1", "pay-2", "pay-3"), count, crashes),
				tally: newTally()})
	}
	var out strings.Builder
	table(&out, columns)
	details(&out, columns[1])
	conclusions(&out, columns)
	for _, want := range []string{
		"Claimed: pay-1 had its effect 2 times: w1 was killed at 1.5s between effect and record\n",
		"Claimed: pay-3 had its effect 3 times: UNEXPLAINED\n",
		"Claimed: pay-2 is lost: w2 was killed at 2.5s before the effect\n",
		"Claimed: ghost had an effect, and nobody produced it\n",
		"BROKEN      BROKEN        none\n",
		"Claimed BROKE its promise: lost 1, doubled 2, 2 effects unexplained, 1 ids from nowhere.\n",
	} {
		assert.Contains(t, out.String(), want, "report lacks %q:\n%s", want, out.String())
	}
	for l := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(l), 101, "line of %d columns: %q", len(l)-1, l)
	}
}

func TestReportCutsLongLists(t *testing.T) {
	ids := make([]string, maxDetails+5)
	for i := range ids {
		ids[i] = strings.Repeat("x", i+1)
	}
	var out strings.Builder
	details(&out, column{judgment: judge(worker.Atomic, produced(ids...), nil, nil),
		tally: newTally()})
	n := strings.Count(out.String(), "\n")
	assert.Equal(t, maxDetails+1, n, "%d lines:\n%s", n, out.String())
	assert.Contains(t, out.String(), "and 5 more", "%d lines:\n%s", n, out.String())
}
