package outbox

import (
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a [Message], in bytes. The bound of the payload is Config.MaxPayload.
const (
	MaxID      = 255
	MaxTopic   = 249
	MaxKey     = 4096
	MaxHeaders = 64 << 10 // all names and values of one message, with 20 for each header
)

var (
	minNotBefore = time.Unix(0, 0)
	maxNotBefore = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Message is one message of the outbox.
type Message struct {
	// ID is what the consumer deduplicates by: at most [MaxID] bytes of UTF-8 without control
	// characters. Choose one that a repetition of the same effect would choose again. Default: 128
	// random bits, drawn at the INSERT.
	ID string
	// Topic it goes to, 1 to [MaxTopic] bytes of printable ASCII without spaces.
	Topic string
	// Key orders messages of one topic, at most [MaxKey] bytes. Default: none, and no order.
	Key []byte
	// Headers are sent with it, at most [MaxHeaders] bytes. None may have the name of
	// Config.IDHeader.
	Headers []Header
	// Payload is the body. Nil differs from empty: in Kafka nil is a tombstone.
	Payload []byte
	// NotBefore is the time, by the database's clock, before which the message is not published. It
	// must be in the years 1970 to 2199. It is rounded up to a microsecond, with SQLite to a
	// millisecond. The message takes its place in the order of its key when that time has come, and
	// holds up no other message until then. It may be published up to RelayConfig.PollMax later.
	// Publishers see zero. Default: zero, which means at once.
	NotBefore time.Time
}

// Header is a header of a message. Names may occur more than once.
type Header struct {
	// Key is the name, in UTF-8.
	Key string
	// Value may be nil, which differs from empty.
	Value []byte
}

// check refuses a message that cannot be stored; at is its position in the call.
func (o *Outbox) check(m *Message, at int) error {
	bad := func(field, reason string, args ...any) error {
		return inputError(fmt.Sprintf("messages[%d].%s", at, field), fmt.Sprintf(reason, args...))
	}
	switch {
	case len(m.ID) > MaxID:
		return bad("ID", "is %d bytes, more than %d", len(m.ID), MaxID)
	case !plain(m.ID):
		return bad("ID", "is not UTF-8, or has control characters")
	case m.Topic == "":
		return bad("Topic", "is empty")
	case len(m.Topic) > MaxTopic:
		return bad("Topic", "is %d bytes, more than %d", len(m.Topic), MaxTopic)
	case !printable(m.Topic):
		return bad("Topic", "is not printable ASCII without spaces")
	case len(m.Key) > MaxKey:
		return bad("Key", "is %d bytes, more than %d", len(m.Key), MaxKey)
	case len(m.Payload) > o.maxPayload:
		return bad("Payload", "is %d bytes, more than Config.MaxPayload, %d", len(m.Payload),
			o.maxPayload)
	case !m.NotBefore.IsZero() &&
		(m.NotBefore.Before(minNotBefore) || !m.NotBefore.Before(maxNotBefore)):
		return bad("NotBefore", "is %v, must be zero, or in the years 1970 to 2199", m.NotBefore)
	}
	return o.checkHeaders(m, bad)
}

func (o *Outbox) checkHeaders(m *Message, bad func(field, reason string, args ...any) error) error {
	size := 0
	for i, h := range m.Headers {
		size += headerCost + len(h.Key) + len(h.Value)
		switch {
		case !utf8.ValidString(h.Key):
			return bad("Headers", "has a name at %d that is not UTF-8", i)
		case h.Key == o.idHeader:
			return bad("Headers", "has %q, which carries the ID", h.Key)
		}
	}
	if size > MaxHeaders {
		return bad("Headers", "are %d bytes, more than %d", size, MaxHeaders)
	}
	return nil
}

// plain reports whether every database accepts s as text, and s cannot break a line of a log.
func plain(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// shardOf keeps all messages of a key together, and spreads messages without a key. It must never
// change, because two versions of a program may write to one table.
func shardOf(m *Message, shards int) int {
	h := fnv.New64a()
	if len(m.Key) > 0 {
		_, _ = h.Write(m.Key)
	} else {
		_, _ = h.Write([]byte(m.ID))
	}
	sum := h.Sum64()
	// The low bits of FNV are the weaker ones.
	return int((sum>>32 ^ sum) % uint64(shards))
}

// newID returns 128 random bits as text.
func newID() string { return rand.Text() }
