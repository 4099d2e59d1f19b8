package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	head = []string{"id", "claimed", "owner"}
	rows = [][]string{
		{"3cfa5a154910aa784941c09b82c104b2", "2m ago", "source 1, partition 2, offset 3"},
		{"51b6e886a709a2e77a4ba8f1d706f0de", "1m ago", "-"},
	}
)

func table(t *testing.T, s Streams) string {
	t.Helper()
	var out bytes.Buffer
	s.Out = &out
	require.NoError(t, s.Table(head, rows))
	return out.String()
}

func TestTable(t *testing.T) {
	const wide = `id                                claimed  owner
3cfa5a154910aa784941c09b82c104b2  2m ago   source 1, partition 2, offset 3
51b6e886a709a2e77a4ba8f1d706f0de  1m ago   -
`
	const narrow = `id 3cfa5a154910aa784941c09b82c104b2
  claimed  2m ago
  owner    source 1, partition 2, offset 3
id 51b6e886a709a2e77a4ba8f1d706f0de
  claimed  1m ago
  owner    -
`
	assert.Equal(t, wide, table(t, Streams{}), "piped")
	assert.Equal(t, wide, table(t, Streams{Width: 80}))
	assert.Equal(t, narrow, table(t, Streams{Width: 60}))
	color := table(t, Streams{Width: 80, Color: true})
	assert.True(t, strings.HasPrefix(color, "\x1b[1mid "), color)
	assert.Contains(t, color, "owner\x1b[0m\n3cfa")
}

func TestFields(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("ein Wort für sich ", 8) + strings.Repeat("ö", 100)
	for _, width := range []int{60, 80} {
		out.Reset()
		s := &Streams{Out: &out, Width: width}
		require.NoError(t, s.Fields([2]string{"key", long}, [2]string{"result", "none"}))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		assert.Greater(t, len(lines), 4)
		for _, line := range lines {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), width, line)
		}
		assert.Equal(t, "result  none", lines[len(lines)-1])
		whole := strings.Join(strings.Fields(strings.TrimPrefix(out.String(), "key")), "")
		assert.Equal(t, strings.ReplaceAll(long, " ", "")+"resultnone", whole)
	}
	out.Reset()
	s := &Streams{Out: &out}
	require.NoError(t, s.Fields([2]string{"key", long}))
	assert.Equal(t, "key  "+long+"\n", out.String(), "piped")
}

func TestPaint(t *testing.T) {
	assert.Equal(t, "x", (&Streams{}).Paint(Red, "x"))
	assert.Equal(t, "\x1b[31mx\x1b[0m", (&Streams{Color: true}).Paint(Red, "x"))
}

func TestLines(t *testing.T) {
	text := "Orders of 1 234 567 MiB: all\n  of them 99.9 % " + Whole("onceward plan --window 3d") +
		"\n\n" + (&Streams{Color: true}).Paint(Bold, "eighteen letters!!") + " x"
	for width, want := range map[int]string{
		0: "Orders of 1 234 567 MiB: all\n  of them 99.9 % onceward plan --window 3d\n\n" +
			"\x1b[1meighteen letters!!\x1b[0m x\n",
		20: "Orders of\n 1 234 567 MiB: all\n  of them 99.9 %\n    onceward plan --window 3d\n\n" +
			"\x1b[1meighteen letters!!\x1b[0m x\n",
	} {
		var out bytes.Buffer
		require.NoError(t, (&Streams{Out: &out, Width: width}).Lines(1, text))
		assert.Equal(t, want, out.String(), width)
	}
}

func TestWidth(t *testing.T) {
	t.Setenv("COLUMNS", "")
	terminal := Standard().Width
	for columns, want := range map[string]int{"61": 61, "0": terminal, "-1": terminal,
		"x": terminal} {
		t.Setenv("COLUMNS", columns)
		assert.Equal(t, want, Standard().Width, columns)
	}
}
