package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// print writes the report for people. It breaks lines that are too long for the terminal.
func (r *Report) print(s *cli.Streams) error {
	var text strings.Builder
	r.describe(s, func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) })
	return s.Lines(0, text.String())
}

func (r *Report) describe(s *cli.Streams, line func(string, ...any)) {
	line("%s: %s messages%s, ids from %s", r.Source, number(r.Messages), r.reach(), r.ID)
	if r.SampledOneIn > 1 {
		line("There were too many ids to keep: one in %d was counted, and figures are estimates",
			r.SampledOneIn)
	}
	if why := r.Uncounted(); why != "" {
		line("\nDuplicates: %s", why)
		return
	}
	line("\nDuplicates: %s, %s of the messages", number(r.Duplicates), percent(r.DuplicateShare))
	var causes [][]string
	for _, c := range r.Causes {
		causes = append(causes, []string{"  " + c.Name, number(c.Count), percent(c.Share)})
	}
	line("%s", s.Columns(causes))
	if len(r.Ages) > 0 {
		line("How long after the first: half within %s, 99.9 %% within %s, the last after %s",
			age(r.Half), age(r.Most), age(r.Longest))
		line("%s", s.Columns(r.histogram(s.Width)))
	}
	r.badIDs(line)
	line("")
	r.need(line)
	if r.Plan != nil {
		line("  %s reckons it with results", cli.Whole(fmt.Sprintf(
			"onceward plan --rate %.4g --window %s --dup %.3g", r.Plan.Rate,
			cli.Span(span(r.WindowMS)), r.DuplicateShare)))
	}
}

// reach describes how much time the messages cover.
func (r *Report) reach() string {
	if r.From.IsZero() {
		return ""
	}
	return fmt.Sprintf(" in %s, to %s", r.Covers(), r.To.Format(time.RFC3339))
}

// barWidth is the length of the longest bar, and barPlace the width of what stands before it.
const barWidth, barPlace = 40, 32

func (r *Report) histogram(width int) (rows [][]string) {
	longest := uint64(barWidth)
	if width > 0 {
		longest = uint64(min(barWidth, max(width-barPlace, 1)))
	}
	most := r.MostByAge()
	for _, b := range r.Ages {
		bar := strings.Repeat("#", int((b.Count*longest+most-1)/most))
		rows = append(rows, []string{"  " + b.Label(), number(b.Count), bar})
	}
	return rows
}

// Label is the time that a bar stands for.
func (b Bar) Label() string {
	if b.WithinMS == 0 {
		return "later"
	}
	return "within " + age(b.WithinMS)
}

func (r *Report) badIDs(line func(string, ...any)) {
	b := r.Bad
	if b.Missing+b.Untimed+b.Reused+b.Remade == 0 {
		line("Ids: every message has one, and none stands for two payloads")
		return
	}
	line("Ids:")
	if b.Missing > 0 {
		line("  %s messages have no id", number(b.Missing))
	}
	if b.Untimed > 0 {
		line("  %s messages have no time: their duplicates have no age", number(b.Untimed))
	}
	if b.Reused > 0 {
		line("  %s ids stand for different payloads, in %s messages: "+
			"as keys they would drop the later ones", number(b.Reused), number(b.ReusedMessages))
		for _, e := range b.ReusedExamples {
			line("    %.80q at %s", e.ID, e.Place)
		}
	}
	if b.Remade > 0 {
		line("  %s messages have a payload that was there under another id: "+
			"is the id made anew for each attempt?", number(b.Remade))
		for _, e := range b.RemadeExamples {
			line("    %.80q at %s, %s apart", e.ID, e.Place, age(e.ApartMS))
		}
	}
}

// need describes the window that would find these duplicates, and its cost.
func (r *Report) need(line func(string, ...any)) {
	switch {
	case r.Duplicates == 0:
		line("Window: there was no duplicate, so these messages do not say which one is needed")
		return
	case r.WindowMS == 0:
		line("Window: no duplicate has a time, so these messages do not say which one is needed")
		return
	}
	line("Window: %s, twice the longest age that was seen. A duplicate that comes after a longer time "+
		"than these messages cover is not among them.", age(r.WindowMS))
	if r.Plan == nil {
		return
	}
	for _, p := range r.Plan.Redis {
		line("  Redis, %s: %s keys, maxmemory %s", p.Layout, number(p.Keys),
			cli.Size(float64(p.MaxMemory)))
	}
	for _, p := range r.Plan.SQL {
		line("  %s, %s: %s rows, %s", p.Engine, p.Retention, number(p.Rows),
			cli.Size(float64(p.Bytes)))
	}
}

func percent(share float64) string {
	switch {
	case share > 0 && share < 0.0001:
		return "less than 0.01 %"
	case share < 0.1:
		return fmt.Sprintf("%.2f %%", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// number formats n with spaces between thousands.
func number(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// age formats a duration for people.
func age(ms int64) string { return cli.Span(cli.Round(span(ms))) }
