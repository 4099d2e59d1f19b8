package bloom

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"
)

// A layer is saved, loaded and merged in chunks: one of more than two, and of no whole number of them.
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
	must(t, err)
	d := &decoder{r: &b, sum: sha256.New()}
	if got := again.read(d, sha256.New()); got != set || d.err != nil || b.Len() != 0 {
		t.Errorf("%d bits of %d, %v, %d bytes left", got, set, d.err, b.Len())
	}
	other := f.newLayer(words * 64)
	other.or(0, more)
	again.merge(other)
	got := make([]uint64, words)
	l.load(0, got)
	if !slices.Equal(got, one) {
		t.Error("what was set is not what is loaded")
	}
	again.load(0, got)
	for i := range got {
		if got[i] != one[i]|more[i] {
			t.Fatalf("word %d is %x, want %x", i, got[i], one[i]|more[i])
		}
	}
}
