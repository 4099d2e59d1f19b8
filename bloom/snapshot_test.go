package bloom

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var source = Source{Name: "s", Epoch: 1, Seq: 100}

// tiny is a filter with one block a generation, at generation 0.
func tiny(clock *hand) Options {
	return Options{Window: 40 * time.Second, Rate: 0.01, Clock: clock.now,
		Secret: []byte("0123456789abcdef"), KeyID: "k1", Kind: testKind}
}

// saved is a snapshot of an owner in generation 0. The owner has fed id g+10 to each generation g
// from -5 to 0.
func saved(t testing.TB, o Options) []byte {
	t.Helper()
	f := mustNew(t, o)
	feed := covering(t, f)
	for gen := int64(-5); gen <= 0; gen++ {
		require.NoError(t, feed.Add(gen, id(uint64(gen+10))))
		require.NoError(t, feed.Covered(gen, 7))
	}
	return save(t, f)
}

func save(t testing.TB, f *Filter, gens ...int64) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, f.Save(&b, gens...))
	return b.Bytes()
}

func TestSnapshot(t *testing.T) { bothKinds(t, testSnapshot) }

func testSnapshot(t *testing.T) {
	o := tiny(&hand{})
	f := mustNew(t, o)
	feed := f.Begin(source)
	got, err := f.Load(bytes.NewReader(saved(t, o)), source)
	require.NoError(t, err)
	assert.Equal(t, []int64{-5, -4, -3, -2, -1}, got)
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "the open generation is not covered", f, 99, Unknown, NotCovered)
	require.NoError(t, feed.Covered(0, 9))
	for n := uint64(5); n <= 10; n++ {
		wantCheck(t, "loaded", f, n, Maybe, None)
	}
	wantCheck(t, "never fed", f, 99, ProvenNew, None)
	again := save(t, f, -5, -4)
	assert.Equal(t, func() []byte { s := sha256.Sum256(again[:len(again)-32]); return s[:] }(),
		again[len(again)-32:], "the sum of a part")
}

// A mark was added after the snapshot, to the generation that was open then. It must not look new.
func TestOlderSnapshot(t *testing.T) { bothKinds(t, testOlderSnapshot) }

func testOlderSnapshot(t *testing.T) {
	clock := &hand{}
	o := tiny(clock)
	old := saved(t, o) // id 77 is marked in generation 0 after this
	clock.move(10 * time.Second)
	f := mustNew(t, o)
	feed := f.Begin(source)
	got, err := f.Load(bytes.NewReader(old), source)
	require.NoError(t, err)
	assert.NotContains(t, got, int64(0),
		"a generation that was open when it was saved came back covered")
	require.NoError(t, feed.Covered(1, 9))
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "marked since", f, 77, Unknown, NotCovered)
}

// An owner saves after its time is over. Another owner may have written to its ended generations.
func TestSavedAfterItsTime(t *testing.T) { bothKinds(t, testSavedAfterItsTime) }

func testSavedAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hand{}
		o := tiny(clock)
		f := mustNew(t, o)
		covering(t, f)
		time.Sleep(2 * time.Hour)
		clock.move(10 * time.Second)
		late := save(t, f)
		g := mustNew(t, o)
		g.Begin(source)
		got, err := g.Load(bytes.NewReader(late), source)
		assert.NoError(t, err)
		assert.Empty(t, got, "covered by one who had lost it")
	})
}

func TestSnapshotRefused(t *testing.T) { bothKinds(t, testSnapshotRefused) }

func testSnapshotRefused(t *testing.T) {
	o := tiny(&hand{})
	good := saved(t, o)
	with := func(change func(*Options)) Options { p := o; change(&p); return p }
	for name, c := range map[string]struct {
		o    Options
		b    []byte
		want Source
		why  Refusal
	}{
		"not one": {o, []byte("GIF8" + string(good[4:])), source, RefusedMagic},
		"empty":   {o, nil, source, RefusedTruncated},
		"version": {o, with1(good, 4, 2), source, RefusedVersion},
		"kind":    {o, with1(good, 5, 3-good[5]), source, RefusedSizes},
		"cut":     {o, good[:len(good)-1], source, RefusedTruncated},
		"longer":  {o, append(slices.Clone(good), 0), source, RefusedTrailing},
		"bits": {o, with1(good, len(good)-100, ^good[len(good)-100]),
			source, RefusedChecksum},
		"key id": {with(func(o *Options) { o.KeyID = "k2" }), good, source, RefusedKeyID},
		"secret": {with(func(o *Options) {
			o.Secret = []byte("0123456789abcdeF")
		}), good, source, RefusedSecret},
		"slices":         {with(func(o *Options) { o.Slices = 5 }), good, source, RefusedSizes},
		"rate":           {with(func(o *Options) { o.Rate = 100 }), good, source, RefusedSizes},
		"source":         {o, good, Source{"t", 1, 100}, RefusedSource},
		"epoch":          {o, good, Source{"s", 0, 100}, RefusedEpoch},
		"sequence":       {o, good, Source{"s", 1, 6}, RefusedSequence},
		"more than fits": {o, manyLayers(good), source, RefusedSizes},
	} {
		f := mustNew(t, c.o)
		f.Begin(c.want)
		got, err := f.Load(bytes.NewReader(c.b), c.want)
		var refused *SnapshotError
		require.ErrorAs(t, err, &refused, name)
		assert.Equal(t, c.why, refused.Reason, name)
		assert.Nil(t, got, name)
		why := Loading
		if c.why == RefusedKeyID || c.why == RefusedSecret {
			why = OtherKey
		}
		wantCheck(t, name, f, 5, Unknown, why)
		assert.Zero(t, f.Stats().Bytes, "%s: refused", name)
	}
}

func with1(b []byte, at int, to byte) []byte {
	b = slices.Clone(b)
	b[at] = to
	return b
}

// firstGen is the offset of the first generation in a snapshot of tiny.
const firstGen = 4 + 3 + 8 + 8 + 8 + 1 + 2 + 2 + 1 + 8 + 1

func manyLayers(b []byte) []byte { return with1(b, firstGen+17, 255) }

// Of a snapshot only the miscounted generation is left out.
func TestMiscounted(t *testing.T) { bothKinds(t, testMiscounted) }

func testMiscounted(t *testing.T) {
	o := tiny(&hand{})
	b := slices.Clone(saved(t, o))
	b[firstGen+18+64]++ // bits set, after one layer of one block
	sum := sha256.Sum256(b[:len(b)-32])
	copy(b[len(b)-32:], sum[:])
	f := mustNew(t, o)
	f.Begin(source)
	got, err := f.Load(bytes.NewReader(b), source)
	require.NoError(t, err)
	assert.Equal(t, []int64{-4, -3, -2, -1}, got)
}

func TestEveryByteFlipped(t *testing.T) { bothKinds(t, testEveryByteFlipped) }

func testEveryByteFlipped(t *testing.T) {
	o := tiny(&hand{})
	good := saved(t, o)
	f := mustNew(t, o)
	feed := f.Begin(source)
	for at := range good {
		got, err := f.Load(bytes.NewReader(with1(good, at, ^good[at])), source)
		require.Error(t, err, "byte %d of %d flipped", at, len(good))
		require.Nil(t, got, "byte %d of %d flipped", at, len(good))
	}
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "nothing was loaded", f, 5, Unknown, NotCovered)
}

func TestSnapshotInput(t *testing.T) {
	clock := &hand{}
	for want, spoil := range map[string]func(*Options){
		"KeyID": func(o *Options) { o.KeyID = "" },
		"Clock": func(o *Options) { o.Clock = nil },
		"Feed":  func(*Options) {},
	} {
		o := tiny(clock)
		spoil(&o)
		f := mustNew(t, o)
		_, err := f.Load(strings.NewReader(""), source)
		for _, err := range []error{err, f.Save(&bytes.Buffer{})} {
			assert.ErrorContains(t, err, want)
		}
	}
	f := mustNew(t, tiny(clock))
	f.Begin(source)
	assert.Error(t, f.Save(&bytes.Buffer{}, 1), "a generation that is not alive was saved")
	f.Begin(Source{Name: strings.Repeat("n", 1<<16)})
	assert.ErrorContains(t, f.Save(&bytes.Buffer{}), "Source.Name",
		"a name that the format cannot hold")
	_, err := f.Load(strings.NewReader(""), Source{Name: "t"})
	assert.Error(t, err, "a snapshot of another source than the Feed's")
}

// A generation that grew is loaded with all its layers, into a generation with ids of its own.
func TestGrownSnapshot(t *testing.T) { bothKinds(t, testGrownSnapshot) }

func testGrownSnapshot(t *testing.T) {
	o := small(&hand{})
	o.Secret, o.KeyID, o.MaxBytes = make([]byte, 16), "k", 1<<16
	f := mustNew(t, o)
	feed := covering(t, f)
	for n := range uint64(3000) {
		require.NoError(t, feed.Add(-1, id(n)))
	}
	g := mustNew(t, o)
	feed = g.Begin(source)
	require.NoError(t, feed.Add(-1, id(9999)))
	got, err := g.Load(bytes.NewReader(save(t, f, -1)), source)
	require.NoError(t, err)
	require.Equal(t, []int64{-1}, got)
	require.GreaterOrEqual(t, g.Stats().Bytes, f.Stats().Bytes)
	for n := range uint64(3000) {
		require.False(t, denies(g, n), n)
	}
	assert.False(t, denies(g, 9999), "what was there before")
	assert.NotZero(t, f.Stats().Grown)
}

func FuzzLoad(f *testing.F) {
	o := tiny(&hand{})
	good := saved(f, o)
	f.Add(good)
	f.Add(good[:firstGen])
	f.Add(manyLayers(good))
	f.Add(with1(good, firstGen, 0x7f))
	classic := o
	classic.Kind = Classic
	f.Add(saved(f, classic))
	f.Fuzz(func(t *testing.T, b []byte) {
		mine := o
		if len(b) > 5 && b[5] == Classic.stored() {
			mine = classic
		}
		g := mustNew(t, mine)
		g.Begin(source)
		got, err := g.Load(bytes.NewReader(b), source)
		assert.False(t, err != nil && (got != nil || g.Stats().Bytes != 0),
			"refused and loaded: %v, %v", got, err)
		assert.LessOrEqual(t, g.Stats().Bytes, uint64(g.opts.MaxBytes))
	})
}
