package others_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// Each process writes what it does into a file of its own, and only these files are judged. One
// write has one record, before the action that it announces or after the one that it reports. A
// record's size divides a page's, so that SIGKILL tears no record.
const recordSize = 16

type kind uint8

const (
	begun   kind = 1 + iota // the first half of an effect
	ended                   // the second half
	stalled                 // the process got no processor for a third of a lease
)

type record struct {
	kind    kind
	message uint32
	child   uint32
}

func (r record) bytes() []byte {
	b := make([]byte, recordSize)
	b[0] = byte(r.kind)
	binary.LittleEndian.PutUint32(b[4:], r.message)
	binary.LittleEndian.PutUint32(b[8:], r.child)
	return b
}

// ledger is the file of one process. Safe for concurrent use.
type ledger struct {
	file  *os.File
	child uint32
}

func openLedger(dir string, child int) (*ledger, error) {
	name := filepath.Join(dir, fmt.Sprintf("ledger-%d", child))
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &ledger{file: f, child: uint32(child)}, err
}

// write appends a record. A process that cannot record its actions must not continue.
func (l *ledger) write(k kind, message uint32) {
	if _, err := l.file.Write(record{k, message, l.child}.bytes()); err != nil {
		panic(err)
	}
}

// readLedgers reads what all processes have written.
func readLedgers(dir string) (all []record, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "ledger-*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(text)%recordSize != 0 {
			return nil, fmt.Errorf("%s ends in half a record", name)
		}
		for ; len(text) > 0; text = text[recordSize:] {
			all = append(all, record{
				kind: kind(text[0]), message: binary.LittleEndian.Uint32(text[4:]),
				child: binary.LittleEndian.Uint32(text[8:]),
			})
		}
	}
	return all, nil
}
