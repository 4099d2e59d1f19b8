package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// outcomeOrder is the order in which the chart piles up outcomes. Claims that run are at the
// bottom.
var outcomeOrder = []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.InFlight, dedup.Mismatch,
	dedup.Uncertain, dedup.Unknown}

// outcomeNames and causeTexts are for people.
var (
	outcomeNames = map[driver.Outcome]string{
		dedup.Acquired: "acquired", dedup.Duplicate: "duplicate", dedup.InFlight: "in flight",
		dedup.Mismatch: "mismatch", dedup.Uncertain: "uncertain", dedup.Unknown: "unknown",
	}
	causeTexts = [causes]string{"broker redelivery", "rebalance replay", "producer retry",
		"key reuse", "late", "another topic or group", "another cause"}
)

// tallyTexts name what is counted in addition to outcomes and causes.
var tallyTexts = [tallies]struct{ name, meaning string }{
	wouldSkip: {"would be skipped", "ran in Observe mode, and would not in Enforce mode"},
	cached:    {"answered from the cache", "without a question to the store"},
	succeeded: {"ended: succeeded", "ends on record"},
	failed:    {"ended: failed for good", "ends on record, replayed as failures"},
	released:  {"ended: released", "attempts that ended without an effect and may run again"},
	endedUncertain: {"ended: uncertain",
		"attempts that ended when their effect might have begun: nothing runs until somebody has found out"},
	uncertain:   {"found uncertain", "each claim that meets such a key counts again"},
	leaseLost:   {"leases lost", "their attempts were canceled"},
	storeErrors: {"errors of the store", "questions it could not answer, or not yet"},
	failedOpen:  {"failed open", "effects without a claim, as the mode FailOpen allows"},
	ageless: {"duplicates without an age",
		"done in the same millisecond, or by a layout that does not keep when"},
}

// overview is the first page.
type overview struct {
	Sources  []sourceRow
	Source   string // the source that is shown, or empty for all
	Charts   []*chart
	Tallies  []tallyRow
	Advice   string // on the window
	Standing standing
	Since    string
}

type sourceRow struct {
	Name, Window, Claims, Duplicates, Old, Oldest string
	Here                                          bool
}

type tallyRow struct{ Name, Count, Meaning string }

// standing holds what a bounded look into the store has found.
type standing struct {
	Uncertain, Marked, Others keyList
	CannotList                bool
	Error                     string
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	all := c.counted()
	o := overview{Source: r.URL.Query().Get("source"), Since: c.start.UTC().Format(instant)}
	if !slices.ContainsFunc(all, func(s *source) bool { return s.name == o.Source }) {
		o.Source = ""
	}
	var h hour
	for _, s := range all {
		o.Sources = append(o.Sources, rowOf(s, o.Source))
		if o.Source == "" || o.Source == s.name {
			h.add(s)
		}
	}
	if len(all) > 0 {
		o.Charts = []*chart{outcomeChart(&h), causeChart(&h), ageChart(&h)}
		o.Advice = advice(&h)
		o.Tallies = h.tallies()
	}
	status := http.StatusOK
	var err error
	if o.Standing, err = c.standing(r.Context()); err != nil {
		status = statusOf(err)
		o.Standing.Error = c.options.ShowError(err)
	}
	return c.write(w, r, status, "overview", "Overview", o)
}

// tallies returns the counts above zero, and the counts whose zero is worth knowing.
func (h *hour) tallies() (rows []tallyRow) {
	for i, text := range tallyTexts {
		n := h.tally[i]
		// an attempt that asked for a release but left its key uncertain was also counted as a
		// release
		if i == released {
			n -= min(n, h.tally[endedUncertain])
		}
		if n > 0 || i == storeErrors || i == leaseLost || i == uncertain {
			rows = append(rows, tallyRow{text.name, grouped(n), text.meaning})
		}
	}
	return rows
}

func rowOf(s *source, shown string) sourceRow {
	var h hour
	h.add(s)
	row := sourceRow{
		Name: s.name, Window: "several", Claims: grouped(h.claims()),
		Duplicates: percent(h.duplicates(), h.claims()), Here: s.name == shown, Oldest: "-",
	}
	aged, old := h.aged(ageBins / 2)
	row.Old = percent(old, aged)
	if s.window > 0 {
		row.Window = short(s.window)
	}
	if aged > 0 {
		row.Oldest = percent(uint64(h.oldest), million)
		if s.window > 0 {
			row.Oldest = short(oldestOf(s.window, h.oldest)) + " (" + row.Oldest + ")"
		}
	}
	return row
}

// standing asks the store for the keys that are uncertain or in flight. An index has all uncertain
// keys and all past their point of no return; standing looks for the others for a while.
func (c *Console) standing(ctx context.Context) (s standing, err error) {
	lister, ok := c.options.Store.(Lister)
	if !ok {
		s.CannotList = true
		return s, nil
	}
	const budget = standingTime / 2
	if s.Uncertain, err = c.uncertainKeys(ctx, lister, reach{}, budget, &filter{}); err == nil {
		s.Marked, s.Others, err = c.inFlight(ctx, lister, reach{}, budget, &filter{})
	}
	return s, err
}

func outcomeChart(h *hour) *chart {
	c := &chart{Name: "outcomes", Title: "Claims, by outcome", Unit: "claims a minute",
		Empty: "No claim in the last hour."}
	for _, o := range outcomeOrder {
		n := h.total.outcome[o]
		c.Series = append(c.Series, series{Class: "o-" + o.String(), Label: outcomeNames[o],
			Total: grouped(n), Share: percent(n, h.claims())})
	}
	c.overTime(h, func(m *minute) (counts []uint64) {
		for _, o := range outcomeOrder {
			counts = append(counts, m.outcome[o])
		}
		return counts
	})
	c.Summary = fmt.Sprintf(
		"Stacked bars, one a minute of the last hour: %s claims, of them %s acquired and %s duplicates.",
		grouped(h.claims()), grouped(h.total.outcome[dedup.Acquired]), grouped(h.duplicates()))
	return c
}

func causeChart(h *hour) *chart {
	all := sum(h.total.cause[:])
	c := &chart{Name: "causes", Title: "Not the first of its key, by cause",
		Unit: "claims a minute", Empty: "No duplicate in the last hour."}
	for i, text := range causeTexts {
		n := h.total.cause[i]
		if i == causes-1 && n == 0 {
			continue
		}
		c.Series = append(c.Series,
			series{Class: "c-" + causeNames[i], Label: text, Total: grouped(n),
				Share: percent(n, all)})
	}
	c.overTime(h, func(m *minute) []uint64 { return m.cause[:len(c.Series)] })
	c.Summary = fmt.Sprintf(
		"Stacked bars, one a minute of the last hour: %s claims that met a key done, in flight or of another payload.", grouped(all))
	return c
}

// tableMinutes is how many minutes one line of a table has.
const tableMinutes = 5

// overTime draws one column a minute, and makes a table with a line for every five minutes.
func (c *chart) overTime(h *hour, counts func(*minute) []uint64) {
	var columns [][]uint64
	for i := range h.minutes {
		columns = append(columns, counts(&h.minutes[i]))
	}
	c.stack(columns)
	for back := 60; back >= 0; back -= 15 {
		at := plotLeft + float64(plotRight-plotLeft)*float64(minutes-back)/minutes
		t := tick{At: unit(at), Label: fmt.Sprintf("-%d min", back), Anchor: "middle"}
		switch back {
		case minutes:
			t.Anchor = "start"
		case 0:
			t.Label, t.Anchor = "now", "end"
		}
		c.Marks = append(c.Marks, t)
	}
	c.Table.Head = []string{"minutes ago"}
	for _, s := range c.Series {
		c.Table.Head = append(c.Table.Head, s.Label)
	}
	for from := 0; from < minutes; from += tableMinutes {
		totals := make([]uint64, len(c.Series))
		for _, column := range columns[from : from+tableMinutes] {
			for i, n := range column {
				totals[i] += n
			}
		}
		line := row{Name: fmt.Sprintf("%d to %d", minutes-from, minutes-from-tableMinutes)}
		for _, n := range totals {
			line.Cells = append(line.Cells, grouped(n))
		}
		c.Table.Rows = append(c.Table.Rows, line)
	}
}

// The twentieths of the window from which on an age is late, and near the end.
const (
	lateBin = ageBins / 2
	endBin  = ageBins * 9 / 10
)

func ageChart(h *hour) *chart {
	all, late := h.aged(lateBin)
	_, end := h.aged(endBin)
	c := &chart{
		Name: "ages", Title: "Age of duplicates, against the window",
		Unit: "duplicates in the last hour", Empty: "No duplicate with an age in the last hour.",
		Series: []series{
			{Class: "a-early", Label: "first half of the window", Total: grouped(all - late),
				Share: percent(all-late, all)},
			{Class: "a-late", Label: "second half", Total: grouped(late - end),
				Share: percent(late-end, all)},
			{Class: "a-end", Label: "last tenth, or beyond", Total: grouped(end),
				Share: percent(end, all)},
		},
		Summary: fmt.Sprintf(
			"Bars, one for each twentieth of the window: %s duplicates, of them %s older than half of it and %s in its last tenth or beyond.",
			grouped(all), grouped(late), grouped(end)),
		Table: table{Head: []string{"age, as a share of the window", "duplicates", "share"}},
	}
	var columns [][]uint64
	for bin, n := range h.age {
		column := make([]uint64, 3)
		switch {
		case bin >= endBin:
			column[2] = n
		case bin >= lateBin:
			column[1] = n
		default:
			column[0] = n
		}
		columns = append(columns, column)
		name := fmt.Sprintf("%d to %d %%", bin*100/ageBins, (bin+1)*100/ageBins)
		if bin == ageBins {
			name = "100 % and more"
		}
		c.Table.Rows = append(c.Table.Rows,
			row{Name: name, Cells: []string{grouped(n), percent(n, all)}})
	}
	c.stack(columns)
	slot := float64(plotRight-plotLeft) / (ageBins + 1)
	for _, bin := range []int{0, 5, 10, 15, ageBins} {
		at := plotLeft + slot*float64(bin)
		t := tick{At: unit(at), Label: fmt.Sprintf("%d %%", bin*100/ageBins), Anchor: "middle"}
		if bin == 0 {
			t.Anchor = "start"
		}
		c.Marks = append(c.Marks, t)
	}
	if all > 0 {
		c.Lines = []line{{X: unit(plotLeft + slot*lateBin)}, {X: unit(plotLeft + slot*ageBins)}}
	}
	return c
}

// advice returns what the ages of the duplicates mean for the window.
func advice(h *hour) string {
	all, late := h.aged(lateBin)
	_, end := h.aged(endBin)
	of := "the duplicates"
	if ageless := h.tally[ageless]; ageless > 0 {
		of = fmt.Sprintf("the %s duplicates with a known age (%s have none)", grouped(all),
			grouped(ageless))
	}
	switch {
	case all == 0:
		return "No duplicate with a known age came in the last hour: nothing can be said of the window."
	case end > 0:
		return fmt.Sprintf("%s of %s came in the last tenth of the window or after it. Others may have come when their key was forgotten, and ran twice: raise the window.", percent(end, all), of)
	case late*100 >= all:
		return fmt.Sprintf("%s of %s came when half of the window was over. Find out how late they can get, or raise the window.", percent(late, all), of)
	}
	return fmt.Sprintf("%s of %s came in the first half of the window, and the oldest when %s of it was over: it is long enough for these.",
		percent(all-late, all), of, percent(uint64(h.oldest), million))
}
