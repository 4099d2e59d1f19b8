package owned_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// batchCall is the content of a turn: the number of its marks and touches, begins as pairs of a
// field and ids, and ended fields.
type batchCall struct {
	marks, touches int
	begins, ended  []any
}

// args are a turn's arguments, as the header of batch.lua counts them.
func (b *batchCall) args() []any {
	second := time.Second.Milliseconds()
	args := []any{string(make([]byte, 16)), uint64(77), uint64(5), second, uint64(6), second,
		second, int64(0), uint64(0), strings.Repeat("12345678", b.marks),
		strings.Repeat("12345678", b.touches), len(b.begins) / 2}
	return append(append(args, b.begins...), b.ended...)
}

// noted returns the records that are written when Redis answers a turn.
func noted(t *testing.T, change func(args []any) []any, turn *batchCall,
	reply ...any) (all []record) {
	t.Helper()
	dir := t.TempDir()
	l, err := openLedger(dir, 1)
	require.NoError(t, err)
	defer func() { _ = l.file.Close() }()
	w := newWire(l, []string{"rows"})
	w.expect(partition{0, 3})
	tag := tagOf("rows", sourceName(0), 3)
	args := turn.args()
	if change != nil {
		args = change(args)
	}
	cmd := redis.NewCmd(t.Context(),
		append([]any{"evalsha", "sha", 3, tag + ":head", tag + ":own", tag + ":run"}, args...)...)
	cmd.SetVal(reply)
	w.after(40, cmd)
	require.NoError(t, readLedgers(dir, func(_ int, r record) { all = append(all, r) }))
	return all
}

// answerOf is what head.lua returns: wire reads only its word, epoch and seq.
func answerOf(word string) []any {
	return []any{word, int64(1), int64(0), int64(0), int64(0), int64(0), int64(99), int64(0),
		int64(12), int64(0), int64(0), int64(0), int64(0), ""}
}

// TestWireSeesEveryTurn: whatever an accepted turn carries, it is recorded with the epoch that it
// named. Otherwise a mark that was accepted under an old epoch would not be seen.
func TestWireSeesEveryTurn(t *testing.T) {
	for name, turn := range map[string]batchCall{
		"marks":   {marks: 3},
		"touches": {touches: 1},
		"a begin": {begins: []any{"77:1", "12345678"}},
		"an end":  {ended: []any{"77:1"}},
		"all": {marks: 1, touches: 1, begins: []any{"77:2", "12345678"},
			ended: []any{"77:1"}},
		"nothing: it renews": {},
	} {
		for _, word := range []string{"done", "lapsed", "shared", "behind"} {
			all := noted(t, nil, &turn, answerOf(word)...)
			if assert.Len(t, all, 1, "a turn with %s, answered %q, noted as", name, word) {
				assert.Equal(t, wrote, all[0].kind, "a turn with %s, answered %q, noted as", name,
					word)
				assert.EqualValues(t, 77, all[0].epoch, "a turn with %s, answered %q, noted as",
					name, word)
				assert.EqualValues(t, 12, all[0].seq, "a turn with %s, answered %q, noted as", name,
					word)
				assert.EqualValues(t, 3, all[0].part, "a turn with %s, answered %q, noted as", name,
					word)
				assert.EqualValues(t, 40, all[0].from, "a turn with %s, answered %q, noted as",
					name, word)
				assert.Equal(t, uint64(turn.marks), all[0].key,
					"a turn with %s, answered %q, noted as", name, word)
				assert.Equal(t, word != "lapsed", all[0].attempt == 1,
					"a turn with %s, answered %q, noted as", name, word)
			}
		}
		for _, word := range []string{"stale", "edge", "amnesia"} {
			assert.Empty(t, noted(t, nil, &turn, answerOf(word)...),
				"a turn with %s, answered %q, noted as", name, word)
		}
	}
}

// TestWireKnowsTheLayout: a turn that is laid out otherwise ends the process that sent it.
func TestWireKnowsTheLayout(t *testing.T) {
	full := batchCall{marks: 1, begins: []any{"77:2", "12345678"}, ended: []any{"77:1"}}
	for name, change := range map[string]func(args []any) []any{
		"one argument less at the end": func(args []any) []any {
			return append(args[:11:11], args[12:]...)
		},
		"one argument more in front": func(args []any) []any {
			return append([]any{"new"}, args...)
		},
		"one argument more in between": func(args []any) []any {
			return append(append(args[:5:5], 1), args[5:]...)
		},
		"marks one by one": func(args []any) []any {
			return append(append(args[:9:9], int64(2), int64(3)), args[10:]...)
		},
		"the epoch as text": func(args []any) []any {
			return append([]any{args[0], "77"}, args[2:]...)
		},
		"begins without their ids": func(args []any) []any {
			return append(args[:13:13], args[14:]...)
		},
		"another argument after begins": func(args []any) []any {
			return append(args[:14:14], append([]any{5}, args[14:]...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				assert.Contains(t, text, "another layout", "it was taken")
			}()
			noted(t, change, &full, answerOf("done")...)
		})
	}
}
