package bloom

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"time"
)

// saving is one generation as it is to be written.
type saving struct {
	*generation
	through uint64
	closed  bool
}

// Save writes a snapshot of these generations, or of all, in ascending order. It needs
// Options.Secret, KeyID and Clock, and a Feed that was begun. Adds may continue meanwhile.
//
// A generation is saved as closed only when it is covered, its time is over by the clock, and the
// time given to Feed.Open is not over. A closed generation has every mark that it can have, so it
// proves something to a filter that loads it. An owner that was paused while another one wrote
// never closes a generation.
func (f *Filter) Save(w io.Writer, gens ...int64) error {
	if err := f.storable(); err != nil {
		return err
	}
	list, source, err := f.saving(gens)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	if _, err := out.Write(f.header(source, len(list))); err != nil {
		return fmt.Errorf("bloom: Save: %w", err)
	}
	for _, s := range list {
		if err := s.write(out); err != nil {
			return fmt.Errorf("bloom: Save: generation %d: %w", s.index, err)
		}
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("bloom: Save: %w", err)
	}
	return nil
}

// saving decides what is closed before a single bit is read.
func (f *Filter) saving(gens []int64) (list []saving, source Source, err error) {
	now := f.instant(time.Now())
	over := f.index(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	feed, t := f.feed.Load(), f.live.Load()
	if feed == nil {
		return nil, source, errors.New("bloom: Save: no Feed was begun")
	}
	open := now.before(t.until)
	wanted := map[int64]bool{}
	for _, gen := range gens {
		if t.gen(gen) == nil {
			return nil, source, fmt.Errorf("bloom: Save: generation %d is not alive", gen)
		}
		wanted[gen] = true
	}
	for i, g := range t.gens {
		if len(gens) == 0 || wanted[g.index] {
			closed := open && t.covered>>i&1 == 1 && g.index < over
			list = append(list, saving{g, g.through, closed})
		}
	}
	return list, feed.source, feed.source.check()
}

func (f *Filter) header(source Source, gens int) []byte {
	b := append([]byte(snapshotMagic), snapshotVersion, f.opts.Kind.stored(), byte(f.plan.Hashes))
	b = binary.LittleEndian.AppendUint64(b, f.plan.Bits)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.slice))
	b = binary.LittleEndian.AppendUint64(b, f.secret.check())
	b = append(append(b, byte(len(f.opts.KeyID))), f.opts.KeyID...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(source.Name)))
	b = append(b, source.Name...)
	b = binary.LittleEndian.AppendUint64(b, source.Epoch)
	return append(b, byte(gens))
}

func (s saving) write(w io.Writer) error {
	layers := s.all()
	b := binary.LittleEndian.AppendUint64(nil, uint64(s.index))
	b = binary.LittleEndian.AppendUint64(b, s.through)
	closed := byte(0)
	if s.closed {
		closed = 1
	}
	if _, err := w.Write(append(b, closed, byte(len(layers)))); err != nil {
		return err
	}
	sum := sha256.New()
	set := uint64(0)
	for _, l := range layers {
		n, err := l.write(w, sum)
		if err != nil {
			return err
		}
		set += n
	}
	_, err := w.Write(sum.Sum(binary.LittleEndian.AppendUint64(nil, set)))
	return err
}

// write counts and sums what it writes: bits may be added meanwhile.
func (l *layer) write(w io.Writer, sum hash.Hash) (set uint64, err error) {
	words := make([]uint64, min(chunk/8, l.words()))
	buf := make([]byte, 0, len(words)*8)
	for at := 0; at < l.words(); at += len(words) {
		words, buf = words[:min(len(words), l.words()-at)], buf[:0]
		l.load(at, words)
		for _, word := range words {
			set += uint64(bits.OnesCount64(word))
			buf = binary.LittleEndian.AppendUint64(buf, word)
		}
		_, _ = sum.Write(buf) // a hash does not fail
		if _, err := w.Write(buf); err != nil {
			return 0, err
		}
	}
	return set, nil
}

// chunk is how many bytes of a layer are read or written at once.
const chunk = 64 << 10
