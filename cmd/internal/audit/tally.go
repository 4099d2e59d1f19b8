package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// message is one message to audit.
type message struct {
	id   string // empty: there is none
	time time.Time
	// payload distinguishes equal messages from different ones; nil means that it is not compared.
	payload   []byte
	partition int32
	place     string // where it is, for people
	produced  bool   // from Kafka, where a client keeps the timestamp of a message that it repeats
	replayed  bool   // it was sent back from a dead-letter topic
}

// cause says why a message seems to be a duplicate.
type cause string

const (
	fromDeadLetters cause = "sent back from a dead-letter topic"
	otherPartition  cause = "in another partition"
	producerRetry   cause = "repeated by the producer's client (the same timestamp)"
	sentAgain       cause = "sent again later"
)

// minPayload is the shortest payload, in bytes, that is compared with those of other ids: shorter
// ones are equal by chance.
const minPayload = 32

// seen is what the tally keeps of an id. Its fields are exported for encoding/gob.
type seen struct {
	First, Last int64 // Unix milliseconds
	Payload     uint64
	Partition   int32
	Conflicts   bool
}

// other is what the tally keeps of a payload.
type other struct {
	ID [16]byte
	At int64
}

// Example is an id that is a bad key, and where it was found.
type Example struct {
	ID    string `json:"id"`
	Place string `json:"place"`
	// ApartMS is the time between this message and the earlier one with the same payload.
	ApartMS int64 `json:"apart_ms,omitempty"`
}

const maxExamples = 5

// tally counts messages. If Shift is not 0, all counts but Messages and Missing are estimates. Its
// fields are exported for encoding/gob.
type tally struct {
	Limit int  // ids to keep
	Shift uint // one id in 2^Shift is kept

	IDs      map[[16]byte]seen
	Payloads map[uint64]other

	BadIDs
	Messages    uint64
	Distinct    uint64 // ids
	Duplicates  uint64
	Causes      map[cause]uint64
	Ages        ages
	Longest     int64 // age, in milliseconds
	First, Last int64 // Unix milliseconds; 0: none
}

func newTally(limit int) *tally {
	return &tally{Limit: limit, IDs: map[[16]byte]seen{}, Payloads: map[uint64]other{},
		Causes: map[cause]uint64{}, Ages: ages{}}
}

// add counts a message.
func (t *tally) add(m *message) {
	t.Messages++
	at := t.clock(m)
	payload := digest(m.payload)
	if m.id == "" {
		t.Missing++
		t.compare(m, [16]byte{}, payload, at)
		return
	}
	sum := sha256.Sum256([]byte(m.id))
	id := [16]byte(sum[:16])
	t.compare(m, id, payload, at)
	if !t.kept(binary.LittleEndian.Uint64(id[:8])) {
		return
	}
	before, known := t.IDs[id]
	if !known {
		t.Distinct += t.weight()
		t.IDs[id] = seen{First: at, Last: at, Payload: payload, Partition: m.partition}
		t.thin()
		return
	}
	t.IDs[id] = t.again(m, before, payload, at)
}

// clock returns the time of a message in Unix milliseconds, and updates First and Last.
func (t *tally) clock(m *message) int64 {
	if m.time.IsZero() {
		t.Untimed++
		return 0
	}
	at := m.time.UnixMilli()
	if t.First == 0 || at < t.First {
		t.First = at
	}
	t.Last = max(t.Last, at)
	return at
}

// again counts a message whose id was seen before.
func (t *tally) again(m *message, s seen, payload uint64, at int64) seen {
	if m.payload != nil && s.Payload != payload {
		t.ReusedMessages += t.weight()
		if !s.Conflicts {
			s.Conflicts = true
			t.Reused += t.weight()
			t.ReusedExamples = example(t.ReusedExamples, Example{ID: m.id, Place: m.place})
		}
		return s
	}
	t.Duplicates += t.weight()
	t.Causes[s.cause(m, at)] += t.weight()
	if at != 0 && s.First != 0 {
		apart := at - s.First
		if apart < 0 { // partitions are read at the same time: the first message may be read last
			apart = s.Last - at
		}
		t.Ages.add(apart, t.weight())
		t.Longest = max(t.Longest, apart)
		s.First, s.Last = min(s.First, at), max(s.Last, at)
	}
	return s
}

func (s *seen) cause(m *message, at int64) cause {
	switch {
	case m.replayed:
		return fromDeadLetters
	case m.partition != s.Partition:
		return otherPartition
	case m.produced && (at == s.First || at == s.Last):
		return producerRetry
	}
	return sentAgain
}

// compare looks for the payload of a message under another id. So it finds senders that make a new
// id for each attempt, and duplicates without an id.
func (t *tally) compare(m *message, id [16]byte, payload uint64, at int64) {
	if len(m.payload) < minPayload || !t.kept(payload) {
		return
	}
	before, known := t.Payloads[payload]
	switch {
	case !known:
		t.Payloads[payload] = other{ID: id, At: at}
		t.thin()
	case m.id == "" || before.ID != id:
		t.Remade += t.weight()
		t.RemadeExamples = example(t.RemadeExamples, Example{ID: m.id, Place: m.place,
			ApartMS: max(at-before.At, before.At-at)})
	}
}

func example(all []Example, e Example) []Example {
	if len(all) == maxExamples {
		return all
	}
	return append(all, e)
}

func (t *tally) weight() uint64 { return 1 << t.Shift }

// kept reports whether the tally keeps ids or payloads with this digest.
func (t *tally) kept(digest uint64) bool { return digest&(t.weight()-1) == 0 }

// thin drops half of the ids and payloads if there are too many.
func (t *tally) thin() {
	if len(t.IDs) <= t.Limit && len(t.Payloads) <= t.Limit {
		return
	}
	t.Shift++
	for id := range t.IDs {
		if !t.kept(binary.LittleEndian.Uint64(id[:8])) {
			delete(t.IDs, id)
		}
	}
	for payload := range t.Payloads {
		if !t.kept(payload) {
			delete(t.Payloads, payload)
		}
	}
}

func digest(payload []byte) uint64 {
	sum := sha256.Sum256(payload)
	return binary.LittleEndian.Uint64(sum[:8])
}

func span(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
