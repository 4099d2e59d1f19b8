package progress

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		got := shown()
		assert.Equal(t, "", got, "a bar of short work: %q", got)
		m.Add(250)
		wait(501 * time.Millisecond) // one second in all
		got, want := shown(), "\x1b[Kmarks  [#####...............]  25 %  250 of 1000"
		assert.True(t, strings.HasPrefix(got,
			want))
		wait(8950 * time.Millisecond) // the last drawing is after 9.9 s
		got, want = shown(), "25.3/s  10s  30s left"
		assert.True(t, strings.HasSuffix(got, want), "%q, want %q at its end", got, want)
		m.Say("half of it is larger")
		got = shown()
		assert.Equal(t, "", got, "%q is left behind a line", got)
		m.Add(2000)
		wait(redraw)
		got, want = shown(), "[####################]  100 %  2250 of 1000"
		assert.Contains(t, got, want)
		assert.NotContains(t, got, "left")
	})
	assert.Contains(t, text, wipe+"half of it is larger\n",
		"the bar was not erased for a line: %q", text)
	assert.True(t, strings.HasSuffix(text, wipe), "the bar is left: %q", text)
}

// Lines that the work prints to the same terminal are above the bar, which is drawn again at once.
func TestLinesAboveTheBar(t *testing.T) {
	text := timeline(t, 4, true, func(m *Meter, wait func(time.Duration), shown func() string) {
		lines := above{m, m.out}
		write := func(line string) {
			n, err := lines.Write([]byte(line))
			assert.Equal(t, len(line), n)
			assert.NoError(t, err)
		}
		write("the first\n")
		got := shown()
		assert.Equal(t, "", got, "a bar of short work: %q", got)
		wait(firstDraw)
		m.Add(1)
		write("the second\n")
		got, want := shown(), "\x1b[Kmarks  [#####...............]  25 %  1 of 4"
		assert.True(t, strings.HasPrefix(got, want))
		m.Stop()
		write("the last\n")
	})
	assert.True(t, strings.HasPrefix(text, "the first\n"+wipe))
	assert.Contains(t, text, wipe+"the second\n"+wipe+"marks")
	assert.True(t, strings.HasSuffix(text, wipe+"the last\n"))
}

func TestElsewhere(t *testing.T) {
	text := timeline(t, 0, false, func(m *Meter, wait func(time.Duration), _ func() string) {
		wait(lines - time.Millisecond)
		m.Say("begun")
		wait(2 * time.Millisecond)
		m.Add(40)
		wait(lines)
	})
	assert.Equal(t, "begun\nmarks  10s\nmarks  40  2/s  20s\n", text)
}

func TestShortWorkShowsNothing(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		text := timeline(t, 9, terminal, func(m *Meter, _ func(time.Duration), _ func() string) {
			m.Add(9)
		})
		assert.Equal(t, "", text, "terminal %t: %q", terminal, text)
	}
}

func TestNone(t *testing.T) {
	var m *Meter
	m.Add(1)
	m.Say("nobody reads it")
	m.Stop()
	assert.Equal(t, io.Discard, m.Over(io.Discard),
		"lines of no meter are not written as they are")
}

func TestOnTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	assert.False(t, OnTerminal(io.Discard), "a file is a terminal")
	assert.False(t, OnTerminal(file), "a file is a terminal")
	m := Start(file, "marks", 1)
	assert.Equal(t, file, m.Over(file), "a file has a bar")
	m.Stop()
}
