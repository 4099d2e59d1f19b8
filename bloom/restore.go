package bloom

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"time"
)

// Load adds a snapshot to the filter, under the Feed that was begun last. The Source of that Feed
// must have the name in want. Epoch and Seq of want are the current ones of the source. It needs
// what Save needs.
//
// Generations that were saved closed, and whose time is over here as well, come back covered: Load
// returns their indexes. The bits of other generations are added too, but they prove nothing. A
// snapshot that is older than the last mark proves nothing either. If one generation is out of the
// window, or its count of bits is wrong, only that generation is left out. For every other flaw the
// answer is a *SnapshotError and nothing is loaded. Until its end is read, the snapshot is held in
// addition to the filter: up to MaxBytes more.
func (f *Filter) Load(r io.Reader, want Source) ([]int64, error) {
	if err := errors.Join(f.storable(), want.check()); err != nil {
		return nil, err
	}
	feed := f.feed.Load()
	if feed == nil {
		return nil, errors.New("bloom: Load: no Feed was begun")
	}
	if feed.source.Name != want.Name {
		return nil, fmt.Errorf("bloom: Load: the source %q is wanted, and the Feed is of %q",
			want.Name, feed.source.Name)
	}
	list, err := f.decode(r, want)
	if err != nil {
		f.otherKey(err)
		return nil, err
	}
	return f.install(feed, list)
}

// otherKey makes answers Unknown(OtherKey) while nothing covers the filter, so that the refusal is
// visible.
func (f *Filter) otherKey(err error) {
	var refused *SnapshotError
	if !errors.As(err, &refused) ||
		refused.Reason != RefusedKeyID && refused.Reason != RefusedSecret {
		return
	}
	f.change(func(t *table) (*table, []Event) {
		if t.fed || t.before != Loading {
			return t, nil
		}
		next := *t
		next.before = OtherKey
		return &next, []Event{{Kind: CoverageLost, Generation: t.newest, Reason: OtherKey}}
	})
}

// loaded is one generation of a snapshot.
type loaded struct {
	index   int64
	through uint64
	closed  bool
	sound   bool // its bits are as many as it says
	layers  []*layer
}

// decoder reads a snapshot, and sum is the digest of all that it has read. After the first flaw it
// reads nothing.
type decoder struct {
	r   io.Reader
	sum hash.Hash
	err error
}

func (d *decoder) refuse(why Refusal, cause error) {
	if d.err == nil {
		d.err = &SnapshotError{Reason: why, Err: cause}
	}
}

func (d *decoder) require(ok bool, why Refusal) {
	if !ok {
		d.refuse(why, nil)
	}
}

func (d *decoder) fill(b []byte) []byte {
	if d.err == nil {
		if _, err := io.ReadFull(d.r, b); err != nil {
			d.refuse(RefusedTruncated, err)
		}
		_, _ = d.sum.Write(b) // a hash does not fail
	}
	return b
}

func (d *decoder) bytes(n int) []byte { return d.fill(make([]byte, n)) }
func (d *decoder) byte() byte         { return d.bytes(1)[0] }
func (d *decoder) uint64() uint64     { return binary.LittleEndian.Uint64(d.bytes(8)) }

func (f *Filter) decode(r io.Reader, want Source) ([]loaded, error) {
	d := &decoder{r: r, sum: sha256.New()}
	left := uint64(f.opts.MaxBytes)
	var list []loaded
	for n := f.decodeHeader(d, want); n > 0 && d.err == nil; n-- {
		g := f.decodeGeneration(d, &left)
		d.require(g.through <= want.Seq, RefusedSequence)
		d.require(len(list) == 0 || g.index > list[len(list)-1].index, RefusedSizes)
		list = append(list, g)
	}
	whole := d.sum.Sum(nil)
	d.require(bytes.Equal(d.bytes(sha256.Size), whole), RefusedChecksum)
	if d.err != nil {
		return nil, d.err
	}
	if n, _ := io.ReadFull(r, make([]byte, 1)); n > 0 {
		d.refuse(RefusedTrailing, nil)
	}
	return list, d.err
}

// decodeHeader returns the number of generations.
func (f *Filter) decodeHeader(d *decoder, want Source) int {
	d.require(string(d.bytes(len(snapshotMagic))) == snapshotMagic, RefusedMagic)
	d.require(d.byte() == snapshotVersion, RefusedVersion)
	d.require(d.byte() == f.opts.Kind.stored(), RefusedSizes)
	d.require(int(d.byte()) == f.plan.Hashes, RefusedSizes)
	d.require(d.uint64() == f.plan.Bits, RefusedSizes)
	d.require(d.uint64() == uint64(f.slice), RefusedSizes)
	check := d.uint64()
	d.require(string(d.bytes(int(d.byte()))) == f.opts.KeyID, RefusedKeyID)
	d.require(check == f.secret.check(), RefusedSecret)
	name := d.bytes(int(binary.LittleEndian.Uint16(d.bytes(2))))
	d.require(string(name) == want.Name, RefusedSource)
	d.require(d.uint64() <= want.Epoch, RefusedEpoch)
	n := int(d.byte())
	d.require(n <= f.plan.Generations, RefusedSizes)
	return n
}

// left is how many bytes may still be allocated: decodeGeneration subtracts the bytes of each layer
// before it allocates the layer.
func (f *Filter) decodeGeneration(d *decoder, left *uint64) loaded {
	g := loaded{index: int64(d.uint64()), through: d.uint64()}
	closed, layers := d.byte(), int(d.byte())
	d.require(closed <= 1, RefusedSizes)
	g.closed = closed == 1
	sum, set := sha256.New(), uint64(0)
	for n := 0; n < layers && d.err == nil; n++ {
		size := f.plan.Bits << n
		if size>>n != f.plan.Bits || size/8 > *left {
			d.refuse(RefusedSizes, nil)
			break
		}
		*left -= size / 8
		l := f.newLayer(size)
		set += l.read(d, sum)
		g.layers = append(g.layers, l)
	}
	g.sound = d.uint64() == set
	bitsSum := sum.Sum(nil)
	d.require(bytes.Equal(d.bytes(sha256.Size), bitsSum), RefusedChecksum)
	return g
}

// read fills a layer that nobody else knows yet, and counts its bits.
func (l *layer) read(d *decoder, sum hash.Hash) (set uint64) {
	buf := make([]byte, min(chunk, l.bytes()))
	words := make([]uint64, len(buf)/8)
	for at := 0; at < l.words() && d.err == nil; at += len(words) {
		words = words[:min(len(words), l.words()-at)]
		b := d.fill(buf[:len(words)*8])
		_, _ = sum.Write(b) // a hash does not fail
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(b[8*i:])
			set += uint64(bits.OnesCount64(words[i]))
		}
		l.or(at, words)
	}
	return set
}

// install adds the bits, and then covers the generations that were closed when they were saved. An
// open generation lacks the ids that were marked since.
func (f *Filter) install(feed *Feed, list []loaded) (covered []int64, err error) {
	now := f.instant(time.Now())
	t, over := f.at(now), f.index(now)
	var closed []loaded
	for _, g := range list {
		if t.gen(g.index) == nil || !g.sound {
			continue
		}
		if f.merge(t.gen(g.index), g.layers) && g.closed && g.index < over {
			closed = append(closed, g)
			covered = append(covered, g.index)
		}
	}
	err = feed.claim(func(t *table) *table {
		for _, g := range closed {
			t = t.cover(g.index, g.through)
		}
		return t
	})
	if err != nil {
		return nil, err
	}
	return covered, nil
}

// merge ORs layers into g, and makes those that it lacks. It returns false, and adds nothing, if
// that would exceed MaxBytes.
func (f *Filter) merge(g *generation, layers []*layer) bool {
	f.grow.Lock()
	defer func() { f.grow.Unlock(); f.weigh(g) }()
	mine := g.all()
	if len(layers) > len(mine) {
		more := uint64(0)
		for _, l := range layers[len(mine):] {
			more += l.bytes()
		}
		if len(mine) == 0 {
			more -= f.plan.Bits / 8 // is counted in
		}
		if f.bytes(f.live.Load())+more > uint64(f.opts.MaxBytes) {
			return false
		}
		all := append(mine[:len(mine):len(mine)], layers[len(mine):]...)
		g.layers.Store(&all)
	}
	for n := range min(len(mine), len(layers)) {
		mine[n].merge(layers[n])
	}
	return true
}
