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

// A program whose effects the command does not see has not lost them: the report says how to show
// them.
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

// Some duplicates are right behind their first, so that both are under way at once, and some later.
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
