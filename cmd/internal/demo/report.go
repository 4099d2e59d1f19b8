package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/dedup/driver"
)

// column is what the report shows about one composition.
type column struct {
	judgment
	*tally
	took time.Duration
}

// texts are the words about a composition. The last says where a worker was killed after the
// effect.
var texts = map[worker.Composition]struct{ title, explanation, afterEffect string }{
	worker.Atomic: {"Atomic", "record and effect in one SQL transaction (sqladapter.MarkTx)",
		"after the commit, before the offset"},
	worker.Claimed: {"Claimed", "lease and record in Redis, effect elsewhere",
		"between effect and record"},
	worker.Naive: {"SET NX",
		"the usual SET NX with a time to live before the effect, DEL on an error",
		"after the effect"},
}

// where describes in words where a worker was killed.
func (c crash) where(comp worker.Composition) string {
	if c.point == worker.BeforeEffect {
		return "before the effect"
	}
	return texts[comp].afterEffect
}

// line is a row of the report. An optional row is left out if all its values are zero.
type line struct {
	label    string
	value    any
	optional bool
}

// lines are the rows of the report, with the values of one column.
func (c column) lines() []line {
	crashesAt := func(p worker.Point) int {
		return count(c.crashes, func(c crash) bool { return c.point == p })
	}
	unfinished := max(0, c.events[worker.Delivered]-c.events[worker.Skipped]-c.effects)
	unexplained := count(c.doubled, func(d deviation) bool { return d.unexplained() > 0 })
	return []line{
		{"delivered", c.events[worker.Delivered], false},
		{"unique ids", c.unique, false},
		{"effects in the ledger", c.effects, false},
		{"duplicates skipped", c.events[worker.Skipped], false},
		{"  producer retry", c.skipped[driver.ProducerRetry], true},
		{"  replay after crash or rebalance", c.skipped[driver.RebalanceReplay], true},
		{"  broker redelivery", c.skipped[driver.BrokerRedelivery], true},
		{"  key reuse", c.skipped[driver.KeyReuse], true},
		{"  another topic or group", c.skipped["other_source"], true},
		{"given back or died with a worker", unfinished, true},
		{"waited for another worker's lease", c.events[worker.Waiting], true},
		{"leases lost by a live worker", c.events[worker.LeaseLost], true},
		{"workers killed (SIGKILL)", len(c.crashes), false},
		{"  before the effect", crashesAt(worker.BeforeEffect), false},
		{"  after it, before record or offset", crashesAt(worker.AfterEffect), false},
		{"rebalances", c.rebalances(), false},
		{"lost", len(c.lost), false},
		{"doubled", len(c.doubled), false},
		{"  explained by a crash", len(c.doubled) - unexplained, true},
		{"  unexplained", unexplained, false},
		{"ids that nobody produced", len(c.strange), true},
		{"promise", c.outcome(), false},
		{"time", fmt.Sprintf("%.1fs", c.took.Seconds()), false},
	}
}

func count[T any](all []T, counts func(T) bool) int {
	n := 0
	for _, one := range all {
		if counts(one) {
			n++
		}
	}
	return n
}

func (c column) outcome() string {
	switch {
	case c.composition == worker.Naive:
		return "none"
	case c.kept():
		return "kept"
	}
	return "BROKEN"
}

// report writes the table, the ids with unusual effects, and a sentence about each composition.
func report(w io.Writer, columns []column) {
	fmt.Fprintln(w)
	table(w, columns)
	fmt.Fprintln(w)
	for _, c := range columns {
		details(w, c)
	}
	conclusions(w, columns)
}

// table writes the columns side by side.
func table(w io.Writer, columns []column) {
	const labelWidth, columnWidth = 36, 12
	rule := strings.Repeat("-", labelWidth+columnWidth*len(columns))
	fmt.Fprintf(w, "%-*s", labelWidth, "")
	values := make([][]line, len(columns))
	for i, c := range columns {
		fmt.Fprintf(w, "%*s", columnWidth, texts[c.composition].title)
		values[i] = c.lines()
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	for row, l := range values[0] {
		cells, zero := "", true
		for _, lines := range values {
			zero = zero && lines[row].value == 0
			cells += fmt.Sprintf("%*v", columnWidth, lines[row].value)
		}
		if l.optional && zero {
			continue
		}
		if l.label == "lost" || l.label == "promise" {
			fmt.Fprintln(w, rule)
		}
		fmt.Fprintf(w, "%-*s%s\n", labelWidth, l.label, cells)
	}
}

// maxDetails bounds how many ids of one kind are listed.
const maxDetails = 20

// details writes every doubled and lost id with the crash that explains it.
func details(w io.Writer, c column) {
	var all []string
	for _, d := range c.doubled {
		all = append(all,
			fmt.Sprintf("%s had its effect %d times: %s", d.id, d.times, c.because(d)))
	}
	for _, d := range c.lost {
		all = append(all, fmt.Sprintf("%s is lost: %s", d.id, c.because(d)))
	}
	for _, id := range c.strange {
		all = append(all, id+" had an effect, and nobody produced it")
	}
	if more := len(all) - maxDetails; more > 0 {
		all = append(all[:maxDetails], fmt.Sprintf("... and %d more", more))
	}
	for _, text := range all {
		fmt.Fprintf(w, "%s: %s\n", texts[c.composition].title, text)
	}
}

// conclusions writes a sentence for each column about what it shows.
func conclusions(w io.Writer, columns []column) {
	for _, c := range columns {
		fmt.Fprintf(w, "%s %s.\n", texts[c.composition].title, c.finding())
	}
}

// because returns a text that lists the crashes that explain a deviation, and says if they do not
// suffice. The usual pattern deletes its key after any error, although a call that a rebalance has
// cut off may have had its effect.
func (c column) because(d deviation) string {
	var parts []string
	for _, k := range d.crashes {
		parts = append(parts, fmt.Sprintf("%s was killed at %.1fs %s", k.worker, k.at.Seconds(),
			k.where(c.composition)))
	}
	switch {
	case d.unexplained() == 0:
	case c.composition == worker.Naive && d.times > 0:
		parts = append(parts, "no crash: its DEL after an error forgot an effect that had landed")
	default:
		parts = append(parts, "UNEXPLAINED")
	}
	return strings.Join(parts, "; ")
}

// Result is what --json writes about one composition.
type Result struct {
	Composition string `json:"composition"`
	Kept        bool   `json:"kept"` // also true for the usual pattern, which promises nothing
	Delivered   int    `json:"delivered"`
	Unique      int    `json:"unique_ids"`
	Effects     int    `json:"effects"`
	Duplicates  int    `json:"duplicates_skipped"`
	Killed      int    `json:"workers_killed"`
	Rebalances  int    `json:"rebalances"`
	// Lost and Doubled are ids. Unexplained is how many extra effects the kills do not explain.
	Lost        []string `json:"lost"`
	Doubled     []string `json:"doubled"`
	Unexplained int      `json:"unexplained"`
	Strange     []string `json:"not_produced"`
	Seconds     float64  `json:"seconds"`
}

func results(columns []column) []Result {
	ids := func(deviations []deviation) []string {
		all := make([]string, len(deviations))
		for i, d := range deviations {
			all[i] = d.id
		}
		return all
	}
	all := make([]Result, len(columns))
	for i, c := range columns {
		all[i] = Result{
			Composition: texts[c.composition].title, Kept: c.kept(),
			Delivered: c.events[worker.Delivered], Unique: c.unique, Effects: c.effects,
			Duplicates: c.events[worker.Skipped], Killed: len(c.crashes),
			Rebalances: c.rebalances(), Lost: ids(c.lost), Doubled: ids(c.doubled),
			Unexplained: c.unexplained(), Strange: append([]string{}, c.strange...),
			Seconds: c.took.Seconds(),
		}
	}
	return all
}
