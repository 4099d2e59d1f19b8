package demo

import (
	"fmt"
	"io"
	"strconv"
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

var titles = map[worker.Composition]string{
	worker.Atomic:  "Atomic",
	worker.Claimed: "Claimed",
	worker.Naive:   "SET NX",
}

var explanations = map[worker.Composition]string{
	worker.Atomic:  "record and effect in one SQL transaction (sqladapter.MarkTx)",
	worker.Claimed: "lease and record in Redis, effect elsewhere",
	worker.Naive:   "the usual SET NX with a time to live before the effect, DEL on an error",
}

// where describes in words where a worker was killed.
func (c crash) where(comp worker.Composition) string {
	switch {
	case c.point == worker.BeforeEffect:
		return "before the effect"
	case comp == worker.Claimed:
		return "between effect and record"
	case comp == worker.Atomic:
		return "after the commit, before the offset"
	}
	return "after the effect"
}

// line is a row of the report. An optional row is left out if all its values are zero.
type line struct {
	label    string
	value    func(column) string
	optional bool
}

func number(f func(column) int) func(column) string {
	return func(c column) string { return strconv.Itoa(f(c)) }
}

func cause(why driver.Cause, label string) line {
	return line{label, number(func(c column) int { return c.skipped[why] }), true}
}

var lines = []line{
	{"delivered", number(func(c column) int { return c.delivered }), false},
	{"unique ids", number(func(c column) int { return c.unique }), false},
	{"effects in the ledger", number(func(c column) int { return c.effects }), false},
	{"duplicates skipped", number(func(c column) int { return c.duplicates() }), false},
	cause(driver.ProducerRetry, "  producer retry"),
	cause(driver.RebalanceReplay, "  replay after crash or rebalance"),
	cause(driver.BrokerRedelivery, "  broker redelivery"),
	cause(driver.KeyReuse, "  key reuse"),
	cause("other_source", "  another topic or group"),
	{"given back or died with a worker", number(column.unfinished), true},
	{"waited for another worker's lease", number(func(c column) int { return c.waited }), true},
	{"leases lost by a live worker", number(func(c column) int { return c.lostLeases }), true},
	{"workers killed (SIGKILL)", number(func(c column) int { return len(c.crashes) }), false},
	{"  before the effect", number(func(c column) int {
		return c.crashesAt(worker.BeforeEffect)
	}), false},
	{"  after it, before record or offset", number(func(c column) int {
		return c.crashesAt(worker.AfterEffect)
	}), false},
	{"rebalances", number(func(c column) int { return c.rebalances() }), false},
	{"lost", number(func(c column) int { return len(c.lost) }), false},
	{"doubled", number(func(c column) int { return len(c.doubled) }), false},
	{"  explained by a crash", number(func(c column) int {
		return len(c.doubled) - c.unexplainedIDs()
	}), true},
	{"  unexplained", number(func(c column) int { return c.unexplainedIDs() }), false},
	{"ids that nobody produced", number(func(c column) int { return len(c.strange) }), true},
	{"promise", func(c column) string { return c.outcome() }, false},
	{"time", func(c column) string { return fmt.Sprintf("%.1fs", c.took.Seconds()) }, false},
}

// unfinished is how many deliveries did not finish: they were given back at a rebalance, or their
// worker died.
func (c column) unfinished() int { return max(0, c.delivered-c.duplicates()-c.effects) }

func (c column) unexplainedIDs() int {
	n := 0
	for _, d := range c.doubled {
		if d.unexplained() > 0 {
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

const (
	labelWidth  = 36
	columnWidth = 12
)

// table writes the columns side by side.
func table(w io.Writer, columns []column) {
	rule := strings.Repeat("-", labelWidth+columnWidth*len(columns))
	fmt.Fprintf(w, "%-*s", labelWidth, "")
	for _, c := range columns {
		fmt.Fprintf(w, "%*s", columnWidth, titles[c.composition])
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	for _, l := range lines {
		cells, zero := "", true
		for _, c := range columns {
			v := l.value(c)
			zero = zero && v == "0"
			cells += fmt.Sprintf("%*s", columnWidth, v)
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
		all = append(all, fmt.Sprintf("%s had its effect %d times: %s", d.id,
			d.times, c.because(d.crashes, c.otherwise(d))))
	}
	for _, l := range c.lost {
		all = append(all, fmt.Sprintf("%s is lost: %s",
			l.id, c.because(l.crashes, unlessCrashed(l.crashes))))
	}
	for _, id := range c.strange {
		all = append(all, id+" had an effect, and nobody produced it")
	}
	for i, text := range all {
		if i == maxDetails {
			fmt.Fprintf(w, "%s: ... and %d more\n", titles[c.composition], len(all)-i)
			return
		}
		fmt.Fprintf(w, "%s: %s\n", titles[c.composition], text)
	}
}

// because returns a text that lists the crashes, followed by the text otherwise.
func (c column) because(crashes []crash, otherwise string) string {
	var parts []string
	for _, k := range crashes {
		parts = append(parts, fmt.Sprintf("%s was killed at %.1fs %s", k.worker, k.at.Seconds(),
			k.where(c.composition)))
	}
	if otherwise != "" {
		parts = append(parts, otherwise)
	}
	return strings.Join(parts, "; ")
}

func unlessCrashed(crashes []crash) string {
	if len(crashes) == 0 {
		return "UNEXPLAINED"
	}
	return ""
}

// otherwise returns the reason why an id has more effects than crashes explain, or "". The usual
// pattern deletes its key after any error, although a call that a rebalance has cut off may have
// had its effect.
func (c column) otherwise(d doubling) string {
	switch {
	case d.unexplained() == 0:
		return ""
	case c.composition == worker.Naive:
		return "no crash: its DEL after an error forgot an effect that had landed"
	}
	return "UNEXPLAINED"
}

// conclusions returns a sentence for each column about what it shows.
func conclusions(w io.Writer, columns []column) {
	for _, c := range columns {
		fmt.Fprintf(w, "%s %s.\n", titles[c.composition], c.finding())
	}
}
