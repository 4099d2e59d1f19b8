package prove

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func TestJudge(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	try := func(id string, from, to int, ok bool) delivery {
		return delivery{id, at(from), at(to), ok}
	}
	done := newEffects([]string{"once", "lost", "doubled", "alone", "unsent"})
	done.at = map[string][]time.Time{"once": {at(1)}, "doubled": {at(11), at(30)},
		"alone": {at(61), at(62)}}
	done.foreign = 1
	r := judge([]string{"once", "lost", "doubled", "alone", "unsent"}, []delivery{
		try("once", 0, 2, true), try("once", 5, 6, true),
		try("lost", 10, 20, false), try("lost", 25, 26, true),
		try("doubled", 10, 20, false), try("doubled", 29, 31, true),
		try("alone", 60, 63, true), try("unsent", 70, 80, false),
	}, done, []time.Time{at(15), at(40)})
	assert.Equal(t, []Wrong{{"lost", 0, []int{1}}}, r.Lost)
	assert.Equal(t, []Wrong{{"doubled", 2, []int{1}}, {"alone", 2, []int{}}}, r.Doubled)
	assert.Equal(t, []string{"unsent"}, r.Unsent)
	assert.Equal(t, 1, r.Once)
	assert.False(t, r.Right())
	var out bytes.Buffer
	require.NoError(t, r.print(&cli.Streams{Out: &out}))
	for _, want := range []string{"lost (kill 1)", "alone (no kill)", "effects of other ids",
		"The program loses messages.", "The program doubles messages, 1 of them without a kill.",
		"leaves messages without an answer"} {
		assert.Contains(t, out.String(), want)
	}
}

// A narrow terminal gets the same words in lines that fit.
func TestNarrowTerminal(t *testing.T) {
	r := &Report{Program: []string{"./service", "--queue", "orders"}, Seed: 1<<64 - 1,
		Messages: 300, Deliveries: 412, Kills: 20, Once: 295,
		Lost: []Wrong{{"m-00000a-17", 0, []int{3, 14}}},
		Doubled: []Wrong{{"m-00000a-1", 2, []int{}}, {"m-00000a-2", 2, []int{20}},
			{"m-00000a-3", 3, []int{1}}}, Unsent: []string{"m-00000a-299"}}
	text := func(s cli.Streams) string {
		var out bytes.Buffer
		s.Out = &out
		require.NoError(t, r.print(&s))
		return out.String()
	}
	const summary = "The program loses messages. The program doubles messages, 1 of them without " +
		"a kill. The program leaves messages without an answer.\n"
	assert.Equal(t, `./service --queue orders: 300 messages in 412 deliveries, 20 kills, `+
		`--seed 18446744073709551615
effect            messages  examples
once              295       
lost              1         m-00000a-17 (kills 3 14)
doubled           3         m-00000a-1 (no kill), m-00000a-2 (kill 20), m-00000a-3 (kill 1)
not acknowledged  1         m-00000a-299
`+summary, text(cli.Streams{}), "piped")
	assert.Equal(t, `./service --queue orders: 300 messages in 412 deliveries, 20
kills, --seed 18446744073709551615
effect once
  messages  295
  examples
effect lost
  messages  1
  examples  m-00000a-17 (kills 3 14)
effect doubled
  messages  3
  examples  m-00000a-1 (no kill), m-00000a-2 (kill 20),
            m-00000a-3 (kill 1)
effect not acknowledged
  messages  1
  examples  m-00000a-299
The program loses messages. The program doubles messages, 1
of them without a kill. The program leaves messages without
an answer.
`, text(cli.Streams{Width: 60}))
	assert.Contains(t, text(cli.Streams{Width: 80, Color: true}), "\n\x1b[31mThe program loses "+
		"messages. The program doubles messages, 1 of them without a\nkill. The program leaves "+
		"messages without an answer.\x1b[0m\n")
}

// A program whose effects the command cannot see has not lost them. The report says how to show
// them to the command.
func TestJudgeSeesNoEffect(t *testing.T) {
	for foreign, want := range map[int]string{
		0: "No effect was seen: the program has to POST each of them to $EFFECTS_URL?id=ID, or",
		3: "No effect has the id of a message: report the Idempotency-Key",
	} {
		done := newEffects([]string{"a"})
		done.foreign = foreign
		r := judge([]string{"a"}, []delivery{{"a", time.Now(), time.Now(), true}}, done, nil)
		assert.False(t, r.Right())
		var out bytes.Buffer
		require.NoError(t, r.print(&cli.Streams{Out: &out}))
		assert.Contains(t, out.String(), want)
		assert.NotContains(t, out.String(), "loses")
	}
}

// Some duplicates follow their first at once, so that both are under way. Others come later.
func TestOrder(t *testing.T) {
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = string(rune('a' + i))
	}
	all := order(ids, 0.3, rand.New(rand.NewPCG(1, 2)))
	assert.InDelta(t, 1300, len(all), 60)
	assert.ElementsMatch(t, ids, slices.Compact(slices.Sorted(slices.Values(all))))
	behind := 0
	for i := range all[1:] {
		if all[i] == all[i+1] {
			behind++
		}
	}
	assert.InDelta(t, 150, behind, 50)
}
