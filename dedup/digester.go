package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// digester makes the IDs of a batch, as Deduper.id makes that of a single call, with what
// can be done once done once. It is for one goroutine.
type digester struct {
	hash hash.Hash
	sum  [sha256.Size]byte
	// text is what is digested: a head, which is version and namespace, scope and key.
	text [1 + 3*2 + maxNamespaceBytes + 2*maxKeyBytes]byte
	head int

	tokens randomTokens // of the same batch, seeded by their user
}

var digesters = sync.Pool{New: func() any { return &digester{hash: sha256.New()} }}

// digester returns one for the namespace. Give it back to digesters.
func (d *Deduper) digester() *digester {
	g, _ := digesters.Get().(*digester)
	g.head = len(appendPart(append(g.text[:0], idVersion), d.cfg.Namespace))
	return g
}

// id checks key and scope and digests them.
func (g *digester) id(r *Request) (ID, error) {
	if r.Scope != "" {
		if err := checkText("Scope", r.Scope, maxKeyBytes); err != nil {
			return ID{}, err
		}
	}
	if r.Key == "" || len(r.Key) > maxKeyBytes {
		return ID{}, checkText("Key", r.Key, maxKeyBytes)
	}
	text := appendPart(appendPart(g.text[:g.head], r.Scope), r.Key)
	if !printableWords(text[len(text)-len(r.Key):]) {
		if err := checkText("Key", r.Key, maxKeyBytes); err != nil {
			return ID{}, err
		}
	}
	g.hash.Reset()
	_, _ = g.hash.Write(text) // it never fails
	return ID(g.hash.Sum(g.sum[:0])[:len(ID{})]), nil
}

// printableWords is printableASCII for eight bytes at a time. A byte that is not printable
// ASCII has its highest bit set: in itself, after adding one (0x7f), or after subtracting a
// space. A carry or borrow can only come from a lower byte that is not printable either. So
// the lowest such byte always shows, and that is enough.
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
