package replay

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFinished(t *testing.T) {
	for _, row := range []struct {
		name string
		next int64
		add  []span
		want int64
		text string
	}{
		{"nothing", 7, nil, 7, ""},
		{"in order", 7, []span{{7, 8}, {8, 9}}, 9, ""},
		{"one is left", 7, []span{{8, 9}}, 7, "onceward-replay/1 1+1"},
		{"two are left", 0, []span{{1, 2}, {4, 6}}, 0, "onceward-replay/1 1+1 2+2"},
		{"out of order", 0, []span{{4, 6}, {1, 2}}, 0, "onceward-replay/1 1+1 2+2"},
		{"grown together", 0, []span{{1, 2}, {3, 4}, {2, 3}}, 0, "onceward-replay/1 1+3"},
		{"the gap closes", 0, []span{{1, 2}, {3, 4}, {0, 1}}, 2, "onceward-replay/1 1+1"},
		{"all gaps close", 0, []span{{1, 2}, {3, 4}, {0, 3}}, 4, ""},
		{"retention passed some", 3, []span{{5, 6}, {9, 10}, {3, 7}}, 7, "onceward-replay/1 2+1"},
		{"nothing is added", 3, []span{{5, 5}, {9, 2}}, 3, ""},
		{"below", 3, []span{{0, 2}}, 3, ""},
	} {
		p := finished{{0, row.next}}
		for _, s := range row.add {
			p = p.with(s.from, s.to)
		}
		assert.Equal(t, row.want, p.next(), row.name)
		assert.Equal(t, row.text, p.text(), row.name)
	}
}

// In any order of calls, finished has the same numbers as a plain set, also after text and parse.
func TestFinishedAsASet(t *testing.T) {
	const size = 60
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := finished{{}}
		var set [size]bool
		for range random.IntN(30) {
			from := random.Int64N(size)
			to := min(size, from+random.Int64N(5))
			p = p.with(from, to)
			for o := from; o < to; o++ {
				set[o] = true
			}
			back, err := parseFinished(p.next(), p.text())
			require.NoError(t, err, "seed %d: %+v came back as %+v, %v", seed, p, back, err)
			require.Equal(t, p, back, "seed %d: %+v came back as %+v, %v", seed, p,
				back, err)
		}
		for o := range int64(size) {
			require.Equal(t, set[o], p.has(o), "seed %d: offset %d is %t, want %t: %+v", seed, o,
				p.has(o), set[o], p)
		}
	}
}

func FuzzParseFinished(f *testing.F) {
	for _, text := range []string{"", "onceward-replay/1 1+1 2+2", "onceward-replay/1",
		"onceward-replay/1 0+1", "onceward-replay/2 1+1", "somebody's",
		"onceward-replay/1 4611686018427387903+4611686018427387903", "onceward-replay/1 1+1 ",
		"onceward-replay/1 +1+1"} {
		f.Add(int64(5), text)
	}
	f.Fuzz(func(t *testing.T, next int64, text string) {
		if next < 0 {
			return
		}
		p, err := parseFinished(next, text)
		if err != nil {
			assert.Contains(t, err.Error(), "not this command's")
			return
		}
		at := p.next()
		for _, s := range p[1:] {
			require.Greater(t, s.from, at, "%q: %+v is not in order", text, p)
			require.Greater(t, s.to, s.from, "%q: %+v is not in order", text, p)
			at = s.to
		}
		again, err := parseFinished(p.next(), p.text())
		require.NoError(t, err, "%q: %+v, then %+v, %v", text, p, again, err)
		assert.Equal(t, p, again, "%q: %+v, then %+v, %v", text, p, again, err)
	})
}

func TestForeignMetadata(t *testing.T) {
	for _, text := range []string{"x", "onceward-replay/1", "onceward-replay/1 ",
		"onceward-replay/1 0+1", "onceward-replay/1 1+0", "onceward-replay/2 1+1",
		"onceward-replay/1 1-1", "onceward-replay/1 1+1 x",
		"onceward-replay/1 " + strings.Repeat("1+1 ", 1100) + "1+1"} {
		p, err := parseFinished(0, text)
		assert.Error(t, err, "%.40q was read as %+v", text, p)
	}
}
