package harness

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Bar draws progress on a terminal, and prints one line per row; without a terminal it
// prints the lines only.
type Bar struct {
	rows     io.Writer
	status   io.Writer
	terminal bool
}

// NewBar prints rows to one file and progress to another, which may be a terminal.
func NewBar(rows io.Writer, status *os.File) *Bar {
	info, err := status.Stat()
	return &Bar{rows: rows, status: status, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// Step implements [Progress].
func (b *Bar) Step(g Group, index, total, round, rounds int) {
	if !b.terminal {
		return
	}
	const width = 24
	done := float64(index) + float64(round)/float64(rounds+1)
	filled := int(done / float64(total) * width)
	fmt.Fprintf(b.status, "\r\x1b[K[%s%s] %d/%d %s: round %d of %d", strings.Repeat("#", filled), strings.Repeat(".", width-filled),
		index+1, total, g.Title, round, rounds)
}

// Done implements [Progress].
func (b *Bar) Done(_ Group, rows []Row) {
	if b.terminal {
		fmt.Fprint(b.status, "\r\x1b[K")
	}
	for _, r := range rows {
		fmt.Fprintln(b.rows, r)
	}
}

// String is the row on one line.
func (r Row) String() string {
	text := fmt.Sprintf("%-46s %-30s %11.4g %-8s", r.Name, r.Side, r.Value, r.Unit)
	if r.Against != "" {
		text += fmt.Sprintf(" %6.2fx [%.2f, %.2f] of %s (%.4g)", r.Ratio, r.Spread[0], r.Spread[1], r.Against, r.AgainstValue)
	}
	if r.Goal != "" {
		verdict := "missed"
		if r.OK {
			verdict = "reached"
		}
		text += fmt.Sprintf(" | goal %s: %s", r.Goal, verdict)
	}
	return text
}
