package bloom

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A layer is saved, loaded and merged in chunks. This layer has more than two chunks, and the last
// one is shorter.
func TestLayerInChunks(t *testing.T) { bothKinds(t, layerInChunks) }

func layerInChunks(t *testing.T) {
	f := mustNew(t, Options{Window: 10, Rate: 1, Kind: testKind})
	const words = 2*chunk/8 + 8
	random := rand.New(rand.NewPCG(1, 2))
	one, more := make([]uint64, words), make([]uint64, words)
	for i := range words {
		one[i], more[i] = random.Uint64()&random.Uint64(), random.Uint64()
	}
	l, again := f.newLayer(words*64), f.newLayer(words*64)
	l.or(0, one)
	var b bytes.Buffer
	set, err := l.write(&b, sha256.New())
	require.NoError(t, err)
	d := &decoder{r: &b, sum: sha256.New()}
	assert.Equal(t, set, again.read(d, sha256.New()))
	require.NoError(t, d.err)
	assert.Equal(t, 0, b.Len())
	other := f.newLayer(words * 64)
	other.or(0, more)
	again.merge(other)
	got := make([]uint64, words)
	l.load(0, got)
	assert.Equal(t, one, got, "what was set is not what is loaded")
	again.load(0, got)
	for i := range got {
		require.Equal(t, one[i]|more[i], got[i], "word %d", i)
	}
}
