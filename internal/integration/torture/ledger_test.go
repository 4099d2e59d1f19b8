package torture_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock: all processes read the same one, and nobody sets it.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// Every process writes what it does into a file of its own, and only these files are judged. A
// record is written before the action that it announces, or after the one that it reports, with one
// write each. So the records of a killed process are there. A record's size divides that of a page,
// so no record is torn.
const recordSize = 64

// kind is the kind of a record.
type kind uint8

const (
	effectBegun kind = 1 + iota // run, message, delivery
	effectEnded                 // run, message
	acking                      // message, delivery: the ack is about to be sent to the source
	refusing                    // message, delivery: the nack is about to be sent to the source
	// message, delivery; code is the point at which the process kills itself
	dying
	stopping // the same, and the process stops itself
	stalled  // the process got no processor; arg is the time in ns
	// an item is sent to the store: run is the call; op, token, lease in arg, flags
	called
	answered // it was answered: run is the call; code is the answer; flags
	died     // conductor: process arg is dead
	paused   // conductor: process arg was stopped from run until now
	// conductor: a strike of the nemesis with this code, from run until arg after now
	struck
	cutting // a COMMIT is cut; code is how
	oracled // the downstream was asked; code 1 when it had the effect
)

// op is a request to a store.
type op uint8

const (
	opClaim op = 1 + iota
	opRenew
	opFinish
	opRelease
	opMark   // Atomic: a whole transaction
	opBehind // any request to a store behind one that has the leases
)

// Flags of calls and answers.
const (
	flagIrreversible  uint8 = 1 << iota // of a call: the irreversible part begins
	flagApplied                         // of a call: the effect has happened
	flagNotStarted                      // of a call: the irreversible part has not begun
	flagTakeUncertain                   // of a call
	flagMine                            // of an answer: the claim found its own token
	flagHeld                            // of an answer
	flagWritten                         // of an answer
	flagRan                             // of an answer of opMark: this call ran the effect
)

// The answers to a call.
const (
	saidUnknown uint8 = iota
	saidAcquired
	saidDuplicate
	saidInFlight
	saidUncertain
	saidEnded // Renew and Finish: see the flags
	saidOther
)

// record is an entry of a ledger. Times are in ns of the machine's monotonic clock.
type record struct {
	kind     kind
	op       op
	code     uint8
	flags    uint8
	message  uint32
	delivery uint32
	run      uint64
	token    uint64
	arg      int64
	at       int64
}

func (r *record) append(to []byte) []byte {
	to = append(to, byte(r.kind), byte(r.op), r.code, r.flags)
	to = binary.LittleEndian.AppendUint32(to, r.message)
	to = binary.LittleEndian.AppendUint32(to, r.delivery)
	to = binary.LittleEndian.AppendUint32(to, 0)
	for _, n := range []uint64{r.run, r.token, uint64(r.arg), uint64(r.at), 0, 0} {
		to = binary.LittleEndian.AppendUint64(to, n)
	}
	return to
}

func readRecord(b []byte) record {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	half := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return record{
		kind: kind(b[0]), op: op(b[1]), code: b[2], flags: b[3], message: half(1),
		delivery: half(2), run: word(2), token: word(3), arg: int64(word(4)), at: int64(word(5)),
	}
}

// ledger is the file of one process; the conductor's is that of process 0. It is safe for
// concurrent use.
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

// next numbers effects and calls of a process.
func (l *ledger) next() uint64 { return l.runs.Add(1) }

// write appends records with one write. A process that cannot record its actions must not continue.
func (l *ledger) write(all ...record) {
	b := make([]byte, 0, recordSize*len(all))
	for i := range all {
		if all[i].at == 0 {
			all[i].at = now()
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

// ms rounds a time of the machine's clock for people.
func ms(ns int64) time.Duration { return time.Duration(ns).Round(10 * time.Microsecond) }
