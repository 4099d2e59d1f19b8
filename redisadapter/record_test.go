package redisadapter

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

var (
	token = dedup.Token(
		[]byte("\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"))
	fingerprint = dedup.Fingerprint(
		[]byte("\x01\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"))
	origin = dedup.Origin{SourceDigest: 0x0123456789abcdef, Partition: 7, Offset: 1<<40 + 3,
		Generation: 12}
	steps = []byte("\x00\x01charge")
)

const (
	fence = 1838342193108256
	ended = 1795256047957
)

// goldens are what the files in testdata/golden mean. A file is never changed: servers
// hold such values. A new version of the record gets new files.
var goldens = map[string]record{
	"in_progress": {
		state: redisscript.InProgress, fence: fence, attempt: 2, span: 3600000, owner: token,
		fingerprint: fingerprint, origin: origin, label: "order 4711",
	},
	"in_progress_bare": {state: redisscript.InProgress, fence: fence, attempt: 1, owner: token},
	"in_progress_danger": {state: redisscript.InProgress, danger: true, fence: fence, attempt: 1,
		span: 259200000, owner: token, steps: steps},
	"in_progress_floor": {state: redisscript.InProgress, fence: fence, attempt: 1, span: 3600000,
		owner: token, floor: fence - 5},
	"succeeded_bare": {state: redisscript.Succeeded, fence: fence, attempt: 1, span: ended,
		owner: firstHalf(token)},
	"succeeded_full": {
		state: redisscript.Succeeded, fence: fence, attempt: 3, span: ended,
		owner:       firstHalf(token),
		fingerprint: fingerprint, origin: origin, label: "order 4711, größer",
		result: []byte("\x00\xff{\"ok\":true}\r\n"),
	},
	"succeeded_kept": {
		state: redisscript.Succeeded, fence: fence, attempt: 3, span: ended,
		owner: firstHalf(token), kept: 259200000, result: []byte("ok"),
	},
	"succeeded_no_result": {state: redisscript.Succeeded, noResult: true, fence: fence, attempt: 1,
		span: ended, owner: firstHalf(token)},
	"succeeded_late": {
		state: redisscript.Succeeded, late: true, fence: fence, attempt: 2, span: ended,
		owner:  firstHalf(token),
		origin: dedup.Origin{Partition: -1, Offset: -1, Generation: -1}, result: []byte{},
	},
	"failed": {state: redisscript.Failed, fence: fence, attempt: 5, span: ended,
		owner: firstHalf(token), result: []byte("card refused: 51")},
	"released": {state: redisscript.Released, fence: fence, attempt: 4, owner: firstHalf(token),
		fingerprint: fingerprint, steps: steps},
	"forgotten": {state: redisscript.Released, forgotten: true, fence: fence, owner: [16]byte{},
		floor: fence},
	"uncertain": {state: redisscript.Uncertain, danger: true, fence: fence, attempt: 1,
		owner: firstHalf(token)},
}

func TestGoldenRecords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	require.NoError(t, err, "%d files for %d golden records (%v)", len(files), len(goldens), err)
	require.Len(t, files, len(goldens),
		"%d files for %d golden records (%v)", len(files), len(goldens), err)
	for name, want := range goldens {
		t.Run(name, func(t *testing.T) {
			raw := Golden(t, name)
			got, err := decodeRecord(raw)
			require.NoError(t, err)
			assert.Equal(t, want, got, "decoded\n%+v, want\n%+v", got, want)
			again := encodeRecord(&want)
			assert.Equal(t, raw, again, "encoded\n%x, want\n%x", again, raw)
		})
	}
}

// TestDecodeRefusesEveryCut prevents a record that was cut in the middle from being read
// as another one.
func TestDecodeRefusesEveryCut(t *testing.T) {
	for name := range goldens {
		raw := Golden(t, name)
		for n := range len(raw) {
			_, err := decodeRecord(raw[:n])
			assert.Error(t, err, "%s cut at %d of %d bytes was read", name, n, len(raw))
		}
		_, err := decodeRecord(raw + "\x00")
		assert.Error(t, err, "%s with a byte too many was read", name)
	}
}

// TestDecodeRefuses looks at single bytes.
func TestDecodeRefuses(t *testing.T) {
	change := func(name string, at int, to byte) string {
		b := []byte(Golden(t, name))
		b[at] = to
		return string(b)
	}
	for name, raw := range map[string]string{
		"empty":          "",
		"the value 1":    "1",
		"newer version":  change("succeeded_full", 0, 2),
		"version 0":      change("succeeded_full", 0, 0),
		"state 0":        change("succeeded_full", 1, 0),
		"state 6":        change("succeeded_full", 1, 6),
		"unknown flag":   change("succeeded_full", 2, 0x0a),
		"fence 2^53":     change("succeeded_bare", 9, 0x20),
		"floor 2^53":     change("in_progress_floor", 43, 0x20),
		"label too long": change("in_progress", len(Golden(t, "in_progress"))-11, 11),
		"steps too long": change("in_progress_danger", 42, 0xff),
		"text":           strings.Repeat("done ", 20),
	} {
		_, err := decodeRecord(raw)
		assert.Error(t, err, "%s: was read", name)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for name := range goldens {
		f.Add(Golden(f, name))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := decodeRecord(raw)
		if err != nil {
			return
		}
		again, err := decodeRecord(encodeRecord(&r))
		require.NoError(t, err, "what was encoded cannot be read")
		require.True(t, sameRecord(&r, &again),
			"decoded\n%+v, encoded and decoded again\n%+v", r, again)
	})
}

func FuzzEncodeRecord(f *testing.F) {
	f.Add(byte(0), byte(0), uint64(fence), uint32(3), uint64(ended), []byte("r"), "label",
		[]byte("s"), int64(5))
	f.Fuzz(func(t *testing.T, state, flags byte, fence uint64, attempt uint32, span uint64,
		result []byte, label string, steps []byte, offset int64) {
		r := record{
			state: 1 + state%5, noResult: flags&1 != 0, danger: flags&2 != 0, late: flags&4 != 0,
			forgotten: flags&8 != 0,
			fence:     fence % (1 << 52), attempt: attempt, span: span % (1 << 48),
			owner: firstHalf(token), floor: fence % 1024,
			origin: dedup.Origin{SourceDigest: fence, Partition: int32(attempt), Offset: offset},
			label:  label[:min(len(label), 64)], steps: steps, result: result, kept: span % 1024,
		}
		if r.state == redisscript.InProgress {
			r.owner = token
		}
		got, err := decodeRecord(encodeRecord(&r))
		require.NoError(t, err)
		require.True(t, sameRecord(&r, &got), "encoded\n%+v, decoded\n%+v", r, got)
	})
}

// sameRecord compares; empty and absent steps are one.
func sameRecord(a, b *record) bool {
	x, y := *a, *b
	if !bytes.Equal(x.steps, y.steps) {
		return false
	}
	x.steps, y.steps = nil, nil
	return reflect.DeepEqual(x, y)
}
