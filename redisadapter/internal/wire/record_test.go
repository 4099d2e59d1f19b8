package wire

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
)

var (
	token = driver.Token(
		[]byte("\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"))
	fingerprint = driver.Fingerprint(
		[]byte("\x01\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"))
	origin = driver.Origin{SourceDigest: 0x0123456789abcdef, Partition: 7, Offset: 1<<40 + 3,
		Generation: 12}
	steps = []byte("\x00\x01charge")
)

const (
	fence = 1838342193108256
	ended = 1795256047957
)

// goldens are the records in the files of testdata/golden. A file is never changed, because servers
// hold such values. A new version of the record gets new files.
var goldens = map[string]Record{
	"in_progress": {
		State: redisscript.InProgress, Fence: fence, Attempt: 2, Span: 3600000, Owner: token,
		Fingerprint: fingerprint, Origin: origin, Label: "order 4711",
	},
	"in_progress_bare": {State: redisscript.InProgress, Fence: fence, Attempt: 1, Owner: token},
	"in_progress_plain": {State: redisscript.InProgress, Plain: true, Fence: fence, Attempt: 1,
		Owner: token},
	"in_progress_danger": {State: redisscript.InProgress, danger: true, Fence: fence, Attempt: 1,
		Span: 259200000, Owner: token, steps: steps},
	"in_progress_floor": {State: redisscript.InProgress, Fence: fence, Attempt: 1, Span: 3600000,
		Owner: token, Floor: fence - 5},
	"succeeded_bare": {State: redisscript.Succeeded, Fence: fence, Attempt: 1, Span: ended,
		Owner: FirstHalf(token)},
	"succeeded_full": {
		State: redisscript.Succeeded, Fence: fence, Attempt: 3, Span: ended,
		Owner:       FirstHalf(token),
		Fingerprint: fingerprint, Origin: origin, Label: "order 4711, größer",
		Result: []byte("\x00\xff{\"ok\":true}\r\n"),
	},
	"succeeded_kept": {
		State: redisscript.Succeeded, Fence: fence, Attempt: 3, Span: ended,
		Owner: FirstHalf(token), Kept: 259200000, Result: []byte("ok"),
	},
	"succeeded_no_result": {State: redisscript.Succeeded, NoResult: true, Fence: fence, Attempt: 1,
		Span: ended, Owner: FirstHalf(token)},
	"succeeded_late": {
		State: redisscript.Succeeded, Late: true, Fence: fence, Attempt: 2, Span: ended,
		Owner:  FirstHalf(token),
		Origin: driver.Origin{Partition: -1, Offset: -1, Generation: -1}, Result: []byte{},
	},
	"failed": {State: redisscript.Failed, Fence: fence, Attempt: 5, Span: ended,
		Owner: FirstHalf(token), Result: []byte("card refused: 51")},
	"released": {State: redisscript.Released, Fence: fence, Attempt: 4, Owner: FirstHalf(token),
		Fingerprint: fingerprint, steps: steps},
	"forgotten": {State: redisscript.Released, forgotten: true, Fence: fence, Owner: [16]byte{},
		Floor: fence},
	"uncertain": {State: redisscript.Uncertain, danger: true, Fence: fence, Attempt: 1,
		Owner: FirstHalf(token)},
}

func TestGoldenRecords(t *testing.T) {
	files, err := filepath.Glob(golden("*"))
	require.NoError(t, err, "%d files for %d golden records (%v)", len(files), len(goldens), err)
	require.Len(t, files, len(goldens),
		"%d files for %d golden records (%v)", len(files), len(goldens), err)
	for name, want := range goldens {
		t.Run(name, func(t *testing.T) {
			raw := redistest.Golden(t, golden(name))
			got, err := DecodeRecord(raw)
			require.NoError(t, err)
			assert.Equal(t, want, got, "decoded\n%+v, want\n%+v", got, want)
			again := EncodeRecord(&want)
			assert.Equal(t, raw, again, "encoded\n%x, want\n%x", again, raw)
		})
	}
}

// TestDecodeRefusesEveryCut: a record that was cut anywhere must not be read as another record.
func TestDecodeRefusesEveryCut(t *testing.T) {
	for name := range goldens {
		raw := redistest.Golden(t, golden(name))
		for n := range len(raw) {
			_, err := DecodeRecord(raw[:n])
			assert.Error(t, err, "%s cut at %d of %d bytes was read", name, n, len(raw))
		}
		_, err := DecodeRecord(raw + "\x00")
		assert.Error(t, err, "%s with a byte too many was read", name)
	}
}

// TestDecodeRefuses looks at single bytes.
func TestDecodeRefuses(t *testing.T) {
	change := func(name string, at int, to byte) string {
		b := []byte(redistest.Golden(t, golden(name)))
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
		"unknown flag":   change("succeeded_full", 2, 0x12),
		"fence 2^53":     change("succeeded_bare", 9, 0x20),
		"floor 2^53":     change("in_progress_floor", 43, 0x20),
		"label too long": change("in_progress", len(redistest.Golden(t, golden("in_progress")))-11, 11),
		"steps too long": change("in_progress_danger", 42, 0xff),
		"text":           strings.Repeat("done ", 20),
	} {
		_, err := DecodeRecord(raw)
		assert.Error(t, err, "%s: was read", name)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for name := range goldens {
		f.Add(redistest.Golden(f, golden(name)))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := DecodeRecord(raw)
		if err != nil {
			return
		}
		again, err := DecodeRecord(EncodeRecord(&r))
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
		r := Record{
			State: 1 + state%5, NoResult: flags&1 != 0, danger: flags&2 != 0, Late: flags&4 != 0,
			forgotten: flags&8 != 0, Plain: flags&16 != 0,
			Fence: fence % (1 << 52), Attempt: attempt, Span: span % (1 << 48),
			Owner: FirstHalf(token), Floor: fence % 1024,
			Origin: driver.Origin{SourceDigest: fence, Partition: int32(attempt), Offset: offset},
			Label:  label[:min(len(label), 64)], steps: steps, Result: result, Kept: span % 1024,
		}
		if r.State == redisscript.InProgress {
			r.Owner = token
		}
		got, err := DecodeRecord(EncodeRecord(&r))
		require.NoError(t, err)
		require.True(t, sameRecord(&r, &got), "encoded\n%+v, decoded\n%+v", r, got)
	})
}

// sameRecord compares two records. Empty steps equal absent steps.
func sameRecord(a, b *Record) bool {
	x, y := *a, *b
	if !bytes.Equal(x.steps, y.steps) {
		return false
	}
	x.steps, y.steps = nil, nil
	return reflect.DeepEqual(x, y)
}

// golden returns the path of a golden record.
func golden(name string) string {
	return filepath.Join("..", "..", "testdata", "golden", name+".hex")
}
