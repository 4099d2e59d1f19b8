package script_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

func TestReadOwnHead(t *testing.T) {
	fields := map[string]string{
		"version": "1", "epoch": "1838413699249152", "since": "6", "mapver": "2", "seq": "3",
		"fence": "4", "forgets": "5", "generation": "-1",
		"shared": "1000", "g": "7", "lost": "1", "new:7": "3", "fold:7": "2", "fresh:7": "-9",
		"kept:7": "10", "new:6": "1", "later": "8", "later:7": "8",
	}
	h, err := script.ReadHead(fields)
	want := script.State{
		Epoch: 1838413699249152, Since: 6, MapVersion: 2, Seq: 3, Fence: 4, Forgets: 5,
		Generation: -1, SharedUntil: time.Second, Gen: 7, Lost: true,
		Gens: map[int64]script.Gen{6: {Newest: 1},
			7: {Newest: 3, Folded: 2, Fresh: -9, Kept: 10}},
	}
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(want), fmt.Sprint(*h))
	h, err = script.ReadHead(nil)
	assert.Nil(t, h, "no head is read")
	assert.NoError(t, err)
	for name, value := range map[string]string{"version": "2", "epoch": "x", "g": "",
		"new:7": "1.5", "fresh:x": "1"} {
		old := fields[name]
		fields[name] = value
		_, err := script.ReadHead(fields)
		assert.ErrorIs(t, err, script.ErrUnreadable, "%s %q is read", name, value)
		if fields[name] = old; old == "" {
			delete(fields, name)
		}
	}
	delete(fields, "version")
	_, err = script.ReadHead(fields)
	assert.ErrorIs(t, err, script.ErrUnreadable, "no version")
}

func TestReadOwnRun(t *testing.T) {
	run, err := script.ReadRun(map[string]string{"9:1": script.Blob(1000, 4, -6),
		"12:0": script.Blob(2000)})
	want := "[{12:0 12 2s []} {9:1 9 1s [4 -6]}]"
	require.NoError(t, err)
	assert.Equal(t, want, fmt.Sprint(run))
	for _, name := range []string{"9", ":1", "x:1", "-9:1"} {
		_, err := script.ReadRun(
			map[string]string{name: script.Blob(1)})
		assert.ErrorIs(t, err, script.ErrUnreadable, "%q is read", name)
	}
	for _, blob := range []string{"", "1234567", "123456789"} {
		_, err := script.ReadRun(map[string]string{"9:1": blob})
		assert.ErrorIs(t, err, script.ErrUnreadable, "%q is read", blob)
	}
}

// FuzzReadOwn prevents a panic over what somebody else has written.
func FuzzReadOwn(f *testing.F) {
	f.Add("new:7", "1", "9:1", script.Blob(1000, 4))
	f.Add("epoch", "-1", ":", "")
	f.Fuzz(func(t *testing.T, name, value, field, blob string) {
		_, _ = script.ReadHead(map[string]string{"version": "1", name: value})
		_, _ = script.ReadRun(map[string]string{field: blob})
		members, err := script.ReadMembers(blob)
		assert.False(t, err == nil &&
			rawMembers(members...) != blob, "%q is read as %v", blob, members)
	})
}

// TestOddReplies prevents a panic, or a guess, when a server answers something else.
func TestOddReplies(t *testing.T) {
	number, text := ":1\r\n", redistest.Bulk("held")
	array := func(values ...string) string {
		out := fmt.Sprintf("*%d\r\n", len(values))
		for _, v := range values {
			out += v
		}
		return out
	}
	values := func(at int, v string) string {
		all := make([]string, 14)
		for i := range all {
			all[i] = number
		}
		all[0], all[13] = text, text
		all[at] = v
		return array(all...)
	}
	for name, reply := range map[string]string{
		"integer": number, "nil": "$-1\r\n", "status": "+OK\r\n", "error": "-ERR what\r\n",
		"short":          array(text, number),
		"another answer": values(0, number), "another clock": values(1, text),
		"nobody": values(12, "$-1\r\n"), "nothing found": values(13, number),
		"a record's": redistest.Answer("held", 1, 1, ""),
	} {
		t.Run(name, func(t *testing.T) {
			runner := script.NewRunner(redistest.Client(t,
				redistest.Fake(t, func([]string) string { return reply })))
			r := runner.Run(t.Context(),
				[]script.Call{script.NewRemap(script.Keys{Head: "h"},
					script.Remap{})})[0]
			assert.Error(t, r.Err, "no error")
		})
	}
}
