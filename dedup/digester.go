package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/keytext"
)

// digester makes the IDs of a batch, as Deduper.id does for a single call, but prepares only once
// what all keys share. It is for one goroutine.
type digester struct {
	hash hash.Hash
	sum  [sha256.Size]byte
	// text is what is digested: a head of version and namespace, then scope and key.
	text [1 + 3*2 + keytext.MaxNamespace + 2*keytext.MaxKey]byte
	head int

	tokens randomTokens // of the same batch, seeded by their user
}

var digesters = sync.Pool{New: func() any { return &digester{hash: sha256.New()} }}

// digester returns a digester for the namespace. Put it back into digesters.
func (d *Deduper) digester() *digester {
	g, _ := digesters.Get().(*digester)
	g.head = len(keytext.AppendPart(append(g.text[:0], keytext.Version), d.cfg.Namespace))
	return g
}

// id checks key and scope and digests them.
func (g *digester) id(r *Request) (driver.ID, error) {
	if r.Scope != "" {
		if err := checkText("Scope", r.Scope, keytext.MaxKey); err != nil {
			return driver.ID{}, err
		}
	}
	if r.Key == "" || len(r.Key) > keytext.MaxKey {
		return driver.ID{}, checkKey(r.Key)
	}
	text := keytext.AppendPart(keytext.AppendPart(g.text[:g.head], r.Scope), r.Key)
	if !printableWords(text[len(text)-len(r.Key):]) {
		if err := checkKey(r.Key); err != nil {
			return driver.ID{}, err
		}
	}
	g.hash.Reset()
	_, _ = g.hash.Write(text) // it never fails
	return driver.ID(g.hash.Sum(g.sum[:0])[:len(driver.ID{})]), nil
}

// printableWords does the work of keytext.PrintableASCII, eight bytes at a time. A byte that is not
// printable ASCII has its highest bit set: in itself, after adding one (0x7f), or after subtracting
// a space. A carry or borrow can only come from a lower byte that is not printable either. So the
// lowest such byte always shows, and that is enough.
func printableWords(text []byte) bool {
	const ones, spaces, highest = 0x0101010101010101, 0x2020202020202020, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		if (w|(w+ones)|(w-spaces))&highest != 0 {
			return false
		}
	}
	for _, b := range text {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}
