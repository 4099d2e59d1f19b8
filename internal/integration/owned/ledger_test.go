package owned_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Every process writes what it does into a file of its own, and only these files are judged. A
// record is written before the action that it announces, or after the one that it reports, with one
// write each. So the records of a killed process are there. A record's size divides that of a page,
// so no record is torn.
const recordSize = 64

// kind is the kind of a record. The comments say which fields are used in addition to at.
type kind uint8

const (
	// an effect begins: run, key, part, epoch, attempt, proven; from: when the claim was sent
	runBegun  kind = 1 + iota
	runEnded       // an effect has ended: run
	markAcked      // its mark was accepted: run; from: when it was sent
	markLost       // its mark was refused, or given up: run
	duplicate      // a message was skipped: key; from: when the claim was sent
	// a message was claimed alone: key, attempt, the outcome in seq; from: when it was sent
	answered
	deadLetter // a message is out of attempts: key, attempt
	dying      // the handler kills its process
	// Redis gave us a partition: part, epoch, seq, the epoch before in key; from: when it was asked
	granted
	// Redis accepted a turn of ours: part, epoch, seq; marks in key, 1 in attempt if it renewed;
	// from: when it was sent
	wrote
	// the filter's answers since the last record: new in key, maybe in epoch, unknown in seq;
	// attempt has how many of the unknown came from a full filter
	verdicts
	refused  // a partition could not be acquired for lack of data: part
	saved    // a snapshot of the filter was written
	loaded   // a snapshot was read
	renewed  // the claim of a run was renewed: run; from: when that was sent
	released // we gave a partition up in good order: part, epoch; from: when that began
	failed   // the handler has failed, and the attempt counts: key
)

// record is an entry of a ledger. Times are those of this machine, in ns.
type record struct {
	kind    kind
	source  uint8
	part    uint16
	attempt uint32
	key     uint64
	epoch   uint64
	seq     uint64 // of a turn in Redis; for runs their number in the process
	from    int64
	at      int64
	proven  bool // a filter called the key new: only the partition's store has the claim
}

func (r *record) append(to []byte) []byte {
	to = append(to, byte(r.kind), r.source)
	to = binary.LittleEndian.AppendUint16(to, r.part)
	to = binary.LittleEndian.AppendUint32(to, r.attempt)
	proven := uint64(0)
	if r.proven {
		proven = 1
	}
	for _, n := range []uint64{r.key, r.epoch, r.seq, uint64(r.from), uint64(r.at), proven, 0} {
		to = binary.LittleEndian.AppendUint64(to, n)
	}
	return to
}

func readRecord(b []byte) record {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return record{
		kind: kind(b[0]), source: b[1], part: binary.LittleEndian.Uint16(b[2:]),
		attempt: binary.LittleEndian.Uint32(b[4:]),
		key:     word(1), epoch: word(2), seq: word(3), from: int64(word(4)), at: int64(word(5)),
		proven: word(6) == 1,
	}
}

// ledger is the file of one process. It is safe for concurrent use.
type ledger struct {
	file *os.File
	runs atomic.Uint64
}

func ledgerName(dir string, child int) string {
	return filepath.Join(dir, "ledger-"+strconv.Itoa(child))
}

func openLedger(dir string, child int) (*ledger, error) {
	f, err := os.OpenFile(ledgerName(dir, child), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &ledger{file: f}, err
}

// write appends records with one write. A process that cannot record its actions must not continue.
func (l *ledger) write(all ...record) {
	b := make([]byte, 0, recordSize*len(all))
	for i := range all {
		if all[i].at == 0 {
			all[i].at = time.Now().UnixNano()
		}
		b = all[i].append(b)
	}
	if _, err := l.file.Write(b); err != nil {
		panic(err)
	}
}

// readLedgers reads all ledgers of a directory, and calls fn with each record and its process.
func readLedgers(dir string, fn func(child int, r record)) error {
	names, err := filepath.Glob(filepath.Join(dir, "ledger-*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		child, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "ledger-"))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if len(text)%recordSize != 0 {
			return fmt.Errorf("%s ends in half a record", name)
		}
		for ; len(text) > 0; text = text[recordSize:] {
			fn(child, readRecord(text))
		}
	}
	return nil
}
