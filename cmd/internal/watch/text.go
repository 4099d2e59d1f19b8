package watch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// lines are what people read of a tick: what is zero is left out where there is a sum.
func (t *Tick) lines() (lines []string) {
	if p := t.Processes; p != nil {
		lines = append(lines, p.lines()...)
	}
	for _, s := range t.Servers {
		limit := "no limit"
		if s.MaxMemory > 0 {
			limit = fmt.Sprintf("%.0f%% of %s", 100*s.UsedMemory/s.MaxMemory, cli.Size(s.MaxMemory))
		}
		lines = append(lines,
			fmt.Sprintf("%s: memory %s, %s; commands %s, evicted %s, expired %s; %.0f clients (all of the server)",
				s.Addr, cli.Size(s.UsedMemory), limit, perSecond(s.Commands), perSecond(s.Evicted),
				perSecond(s.Expired), s.Clients))
	}
	if r := t.Table; r != nil {
		lines = append(lines,
			fmt.Sprintf("%s: inserted %s, updated %s, deleted %s; %.0f rows, %.0f dead",
				r.Name, perSecond(r.Inserted), perSecond(r.Updated), perSecond(r.Deleted),
				r.Live, r.Dead))
	}
	for _, reason := range reasons(t.Failed) {
		lines = append(lines, "NO ANSWER "+reason)
	}
	return lines
}

func (p *Processes) lines() []string {
	lines := []string{
		fmt.Sprintf("claims %s%s", perSecond(sum(p.Claims)), parts(p.Claims)),
		fmt.Sprintf("duplicates %s%s%s", perSecond(sum(p.Causes)), parts(p.Causes), p.ages()),
		fmt.Sprintf("ends %s%s", perSecond(sum(p.Ends)), parts(p.Ends)),
	}
	if sum(p.Trouble) > 0 {
		lines = append(lines, "trouble"+parts(p.Trouble))
	}
	var now []string
	for _, name := range slices.Sorted(maps.Keys(p.Now)) {
		now = append(now, fmt.Sprintf("%s %.0f", words(name), p.Now[name]))
	}
	if now != nil {
		lines = append(lines, "now "+strings.Join(now, ", "))
	}
	if p.Counted < p.Asked {
		lines = append(lines, fmt.Sprintf("the rates are of %d processes of %d",
			p.Counted, p.Asked))
	}
	return lines
}

// ages compares those of duplicates with the window.
func (p *Processes) ages() string {
	if p.AgeHalf == nil || p.Age99 == nil {
		return ""
	}
	text := func(seconds float64) string {
		if seconds < 0 {
			return "older than all bounds"
		}
		return "within " + span(seconds)
	}
	window := "no window is told"
	if p.Window > 0 {
		window = "the window is " + span(p.Window)
	}
	return fmt.Sprintf("; half %s, 99%% %s of the first; %s", text(*p.AgeHalf),
		text(*p.Age99), window)
}

// parts are the rates of a sum that are not zero, largest first.
func parts(of map[string]float64) string {
	names := slices.Collect(maps.Keys(of))
	slices.SortFunc(names, func(a, b string) int {
		if of[a] != of[b] {
			if of[a] > of[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	text := ""
	for _, name := range names {
		if of[name] > 0 {
			text += fmt.Sprintf("  %s %s", words(name), perSecond(of[name]))
		}
	}
	return text
}

// words is a label's value for people. Whoever serves the metrics has written it, so one that is no
// plain word is quoted: it might have escapes that a terminal obeys.
func words(name string) string {
	if strings.IndexFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsPrint(r)
	}) >= 0 {
		return strconv.QuoteToASCII(name)
	}
	return strings.ReplaceAll(name, "_", " ")
}

func span(seconds float64) string { return time.Duration(seconds * float64(time.Second)).String() }

func perSecond(rate float64) string {
	if rate > 0 && rate < 0.1 {
		return "<0.1/s"
	}
	return fmt.Sprintf("%.1f/s", rate)
}
