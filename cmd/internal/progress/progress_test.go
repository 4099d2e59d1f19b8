package progress

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// timeline runs work in fake time, and returns all that was written.
func timeline(t *testing.T, total int64, terminal bool,
	work func(m *Meter, wait func(time.Duration), shown func() string)) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		m := start(&out, "marks", total, terminal)
		work(m, func(d time.Duration) { time.Sleep(d); synctest.Wait() }, func() string {
			m.mu.Lock()
			defer m.mu.Unlock()
			text := out.String()
			return text[strings.LastIndexAny(text, "\r\n")+1:]
		})
		m.Stop()
		m.Stop()
	})
	return out.String()
}

func TestTerminal(t *testing.T) {
	text := timeline(t, 1000, true, func(m *Meter, wait func(time.Duration), shown func() string) {
		wait(firstDraw - time.Millisecond)
		if got := shown(); got != "" {
			t.Errorf("a bar of short work: %q", got)
		}
		m.Add(250)
		wait(501 * time.Millisecond) // it is one second
		if got, want := shown(),
			"\x1b[Kmarks  [#####...............]  25 %  250 of 1000"; !strings.HasPrefix(got,
			want) {
			t.Errorf("%q, want %q", got, want)
		}
		wait(8950 * time.Millisecond) // last drawn after 9.9 s
		if got, want := shown(), "25.3/s  10s  30s left"; !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q at its end", got, want)
		}
		m.Say("half of it is larger")
		if got := shown(); got != "" {
			t.Errorf("%q is left behind a line", got)
		}
		m.Add(2000)
		wait(redraw)
		if got, want := shown(),
			"[####################]  100 %  2250 of 1000"; !strings.Contains(got, want) ||
			strings.Contains(got, "left") {
			t.Errorf("%q, want %q", got, want)
		}
	})
	if !strings.Contains(text, wipe+"half of it is larger\n") {
		t.Errorf("the bar was not erased for a line: %q", text)
	}
	if !strings.HasSuffix(text, wipe) {
		t.Errorf("the bar is left: %q", text)
	}
}

// Lines that the work prints to the same terminal stand above the bar, which is there again at
// once.
func TestLinesAboveTheBar(t *testing.T) {
	text := timeline(t, 4, true, func(m *Meter, wait func(time.Duration), shown func() string) {
		lines := above{m, m.out}
		write := func(line string) {
			if n, err := lines.Write([]byte(line)); n != len(line) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		write("the first\n")
		if got := shown(); got != "" {
			t.Errorf("a bar of short work: %q", got)
		}
		wait(firstDraw)
		m.Add(1)
		write("the second\n")
		if got, want := shown(),
			"\x1b[Kmarks  [#####...............]  25 %  1 of 4"; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		m.Stop()
		write("the last\n")
	})
	if !strings.HasPrefix(text, "the first\n"+wipe) ||
		!strings.Contains(text, wipe+"the second\n"+wipe+"marks") ||
		!strings.HasSuffix(text, wipe+"the last\n") {
		t.Errorf("%q", text)
	}
}

func TestElsewhere(t *testing.T) {
	text := timeline(t, 0, false, func(m *Meter, wait func(time.Duration), _ func() string) {
		wait(lines - time.Millisecond)
		m.Say("begun")
		wait(2 * time.Millisecond)
		m.Add(40)
		wait(lines)
	})
	if want := "begun\nmarks  10s\nmarks  40  2/s  20s\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestShortWorkShowsNothing(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		if text := timeline(t, 9, terminal, func(m *Meter, _ func(time.Duration), _ func() string) {
			m.Add(9)
		}); text != "" {
			t.Errorf("terminal %t: %q", terminal, text)
		}
	}
}

func TestNone(t *testing.T) {
	var m *Meter
	m.Add(1)
	m.Say("nobody reads it")
	m.Stop()
	if out := m.Over(io.Discard); out != io.Discard {
		t.Error("lines of no meter are not written as they are")
	}
}

func TestOnTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if OnTerminal(io.Discard) || OnTerminal(file) {
		t.Error("a file is a terminal")
	}
	m := Start(file, "marks", 1)
	if m.Over(file) != file {
		t.Error("a file has a bar")
	}
	m.Stop()
}
