// Package progress shows on standard error how far long work has come: on a terminal a bar,
// elsewhere a line now and then. Short work shows nothing.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

const (
	// firstDraw is how long work runs before the bar appears, and redraw how often the bar is
	// updated.
	firstDraw = 500 * time.Millisecond
	redraw    = 200 * time.Millisecond
	// lines is how often a line is written if there is no terminal.
	lines = 10 * time.Second
	cells = 20
)

// wipe moves to the beginning of the line and erases it.
const wipe = "\r\x1b[K"

// Meter shows the progress of some work. A nil Meter shows nothing. It is safe for concurrent use.
type Meter struct {
	what     string
	total    int64
	terminal bool
	begun    time.Time
	done     atomic.Int64

	mu    sync.Mutex // of the fields below, and of writes
	out   io.Writer
	drawn bool

	stop    func()
	stopped chan struct{}
}

// Start begins to show the progress of some work. what names the work in a word or two. A total of
// zero is unknown. Start starts a goroutine, which Stop ends.
func Start(out io.Writer, what string, total int64) *Meter {
	return start(out, what, total, OnTerminal(out))
}

func start(out io.Writer, what string, total int64, terminal bool) *Meter {
	quit := make(chan struct{})
	m := &Meter{
		what: what, total: total, terminal: terminal, begun: time.Now(), out: out,
		stop: sync.OnceFunc(func() { close(quit) }), stopped: make(chan struct{}),
	}
	go m.run(quit)
	return m
}

// Add counts n more as done.
func (m *Meter) Add(n int64) {
	if m != nil {
		m.done.Add(n)
	}
}

// Say writes a line that stays, above the bar.
func (m *Meter) Say(line string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erase()
	fmt.Fprintln(m.out, line)
}

// Over returns a writer to out for lines that the work prints. Each Write must hold whole lines. If
// out is a terminal too, the bar is erased for the lines and drawn again below them. Otherwise, and
// for a nil Meter, Over returns out.
func (m *Meter) Over(out io.Writer) io.Writer {
	if m == nil || !m.terminal || !OnTerminal(out) {
		return out
	}
	return above{m, out}
}

// above writes lines that stay above the bar of a meter.
type above struct {
	*Meter
	lines io.Writer
}

// Write implements io.Writer.
func (a above) Write(lines []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.drawn
	a.erase()
	n, err := a.lines.Write(lines)
	if again {
		a.draw()
	}
	return n, err
}

// Stop removes the bar. After Stop has returned, only Say writes. Stop may be called more than
// once.
func (m *Meter) Stop() {
	if m == nil {
		return
	}
	m.stop()
	<-m.stopped
}

func (m *Meter) run(quit <-chan struct{}) {
	defer close(m.stopped)
	first, every := lines, lines
	if m.terminal {
		first, every = firstDraw, redraw
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-quit:
			m.mu.Lock()
			defer m.mu.Unlock()
			m.erase()
			return
		case <-timer.C:
			m.mu.Lock()
			m.draw()
			m.mu.Unlock()
			timer.Reset(every)
		}
	}
}

// draw requires the lock.
func (m *Meter) draw() {
	text := m.text(m.done.Load(), time.Since(m.begun))
	if !m.terminal {
		fmt.Fprintln(m.out, text)
		return
	}
	m.drawn = true
	fmt.Fprint(m.out, wipe+text)
}

// erase requires the lock.
func (m *Meter) erase() {
	if m.drawn {
		m.drawn = false
		fmt.Fprint(m.out, wipe)
	}
}

// text describes how far the work is, how fast it is, and how long the rest will take.
func (m *Meter) text(done int64, took time.Duration) string {
	parts := []string{m.what}
	rate := float64(done) / took.Seconds()
	if m.total > 0 {
		part := min(float64(done)/float64(m.total), 1)
		if m.terminal {
			full := int(part * cells)
			parts = append(parts, "["+strings.Repeat("#", full)+strings.Repeat(".", cells-full)+"]")
		}
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*part),
			fmt.Sprintf("%d of %d", done, m.total))
	} else if done > 0 {
		parts = append(parts, fmt.Sprint(done))
	}
	if done > 0 {
		format := "%.3g/s"
		if rate >= 1000 { // no 1.1e+06
			format = "%.0f/s"
		}
		parts = append(parts, fmt.Sprintf(format, rate))
	}
	parts = append(parts, took.Round(time.Second).String())
	if left := m.total - done; left > 0 && done > 0 {
		parts = append(parts,
			time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second).String()+
				" left")
	}
	return strings.Join(parts, "  ")
}

// OnTerminal reports whether out is a terminal.
func OnTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
