package demo

import (
	"fmt"
	"io"
	"os"
	"time"
)

// teller shows progress: on a terminal one line that is drawn again, otherwise a line
// each second.
type teller struct {
	out      io.Writer
	terminal bool
	drawn    bool
	last     time.Time
}

const (
	redraw = 100 * time.Millisecond
	erase  = "\r\x1b[K"
)

func newTeller(out io.Writer) *teller {
	t := &teller{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		t.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return t
}

// line writes a line that stays.
func (t *teller) line(format string, args ...any) {
	t.wipe()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// event writes what happened when.
func (t *teller) event(at time.Duration, format string, args ...any) {
	t.line("  %5.1fs  %s", at.Seconds(), fmt.Sprintf(format, args...))
}

// status shows how far things are, if it is time for it.
func (t *teller) status(text string) {
	every := time.Second
	if t.terminal {
		every = redraw
	}
	if time.Since(t.last) < every {
		return
	}
	t.last = time.Now()
	if !t.terminal {
		fmt.Fprintln(t.out, "  "+text)
		return
	}
	fmt.Fprint(t.out, erase+"  "+text)
	t.drawn = true
}

func (t *teller) wipe() {
	if t.drawn {
		fmt.Fprint(t.out, erase)
		t.drawn = false
	}
}
