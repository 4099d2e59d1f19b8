package owned_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// batchCall is what a turn brings: the number of its marks and touches, begins as pairs of a field
// and ids, and ended fields.
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

// noted is what is written down when Redis answers a turn.
func noted(t *testing.T, change func(args []any) []any, turn *batchCall,
	reply ...any) (all []record) {
	t.Helper()
	dir := t.TempDir()
	l, err := openLedger(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := readLedgers(dir, func(_ int, r record) { all = append(all, r) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// answerOf is what head.lua returns: of it only word, epoch and seq are looked at.
func answerOf(word string) []any {
	return []any{word, int64(1), int64(0), int64(0), int64(0), int64(0), int64(99), int64(0),
		int64(12), int64(0), int64(0), int64(0), int64(0), ""}
}

// TestWireSeesEveryTurn: whatever an accepted turn carries, it is written down with the epoch that
// it named, or nothing would tell that a mark was taken from an old one.
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
			if len(all) != 1 || all[0].kind != wrote || all[0].epoch != 77 || all[0].seq != 12 ||
				all[0].part != 3 || all[0].from != 40 ||
				all[0].key != uint64(turn.marks) || all[0].attempt == 1 != (word != "lapsed") {
				t.Errorf("a turn with %s, answered %q, is noted as %+v", name, word, all)
			}
		}
		for _, word := range []string{"stale", "edge", "amnesia"} {
			if all := noted(t, nil, &turn, answerOf(word)...); len(all) != 0 {
				t.Errorf("a turn with %s, answered %q, is noted as %+v", name, word, all)
			}
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
				if text, _ := recover().(string); !strings.Contains(text, "another layout") {
					t.Errorf("it was taken: %q", text)
				}
			}()
			noted(t, change, &full, answerOf("done")...)
		})
	}
}
