// Package natspub publishes the messages of an outbox to streams of NATS JetStream.
//
//	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
//	...
//	js, err := jetstream.New(conn)
//	...
//	publisher, err := natspub.New(js)
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, ...})
//
// A message's topic is its subject, and a stream must have that subject: without a stream the
// message stays in the outbox and is tried again. It is acknowledged when the stream has stored it.
//
// By default a NATS server syncs its files to disk every two minutes. A message that the stream has
// acknowledged since the last sync can be lost when all machines of the stream crash at once, or
// its only machine does. With sync_interval: always the server syncs first (Jepsen on NATS 2.12.1,
// December 2025).
//
// # Duplicates
//
// The header Nats-Msg-Id is the subject, a space, and Message.ID. So a stream drops a message that
// is published again within its duplicate window, two minutes by default. The subject is part of
// the header because a stream compares the headers of all its subjects: with only the ID, a message
// would be lost when another one with that ID went to another subject of the stream. After the
// window a consumer deduplicates by the ID, which is in the header onceward-id.
//
// # Order
//
// A key has only one message on its way, and the next one follows after the acknowledgement. The
// key itself is not sent: if consumers need it, insert it as a header.
package natspub

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceward/onceward/outbox"
)

// parallel is how many messages of a call are on their way at once.
const parallel = 256

// maxHeader is how many bytes of headers a replica of a stream keeps.
const maxHeader = 1<<16 - 1

// tooLarge is the code with which a server refuses a message that is too large for its stream.
const tooLarge jetstream.ErrorCode = 10054

// Publisher sends messages to JetStream, those of one subject and key in their order. Make it with
// [New]. It is safe for concurrent use and has nothing to close.
type Publisher struct{ js jetstream.JetStream }

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New checks the connection, which belongs to the caller. Close it when every relay that uses it
// has stopped. An [*outbox.InputError] names an option with which the client would give up during
// an outage, by default after 60 tries, and never publish again.
func New(js jetstream.JetStream) (*Publisher, error) {
	bad := func(option, reason string) error {
		return &outbox.InputError{Field: "nats." + option, Reason: reason}
	}
	switch {
	case js == nil || js.Conn() == nil:
		return nil, bad("JetStream", "is nil, or has no connection")
	case !js.Conn().Opts.AllowReconnect:
		return nil, bad("NoReconnect", "is set: after one outage nothing would be published")
	case js.Conn().Opts.MaxReconnect >= 0:
		return nil, bad("MaxReconnects", fmt.Sprintf(
			"is %d, must be -1: after so many tries nothing would be published any more",
			js.Conn().Opts.MaxReconnect))
	}
	return &Publisher{js}, nil
}

// Check refuses a message that NATS cannot carry as it is. With its headers it may have at most
// max_payload of the server, which is 1 MiB by default, and 65,535 bytes of headers. No header may
// have a line break, a value that begins or ends with a space, or a name with characters that NATS
// does not allow.
func (p *Publisher) Check(m *outbox.Message) error {
	size := len("NATS/1.0\r\n\r\n")
	for key, values := range header(m) {
		if key == "" || strings.ContainsFunc(key, func(c rune) bool {
			return c <= ' ' || c > '~' || strings.ContainsRune(`"()/,:;<=>?@[\]{}`, c)
		}) {
			return fmt.Errorf("natspub: the header name %q is not one of NATS", key)
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n") || strings.Trim(value, " \t") != value {
				return fmt.Errorf("natspub: NATS would change the value of header %q", key)
			}
			size += len(key) + len(value) + len(": \r\n")
		}
	}
	if size > maxHeader {
		return fmt.Errorf("natspub: the headers are %d bytes, more than %d", size, maxHeader)
	}
	// MaxPayload is 0 before the first connection.
	limit := p.js.Conn().MaxPayload()
	if size += len(m.Payload); limit > 0 && int64(size) > limit {
		return fmt.Errorf("natspub: %d bytes: %w: %d", size, nats.ErrMaxPayload, limit)
	}
	return nil
}

// Publish sends the messages with [outbox.PublishEach], 256 at once. When ctx ends it returns at
// once. A message that was on its way then may still be stored; a later copy of it has the same
// Nats-Msg-Id. While the client reconnects, messages wait until ctx ends.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	return outbox.PublishEach(ctx, messages, parallel, p.publish)
}

func (p *Publisher) publish(ctx context.Context, m *outbox.Message) error {
	_, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: m.Topic, Header: header(m), Data: m.Payload})
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == tooLarge ||
		errors.Is(err, nats.ErrMaxPayload) {
		return outbox.Reject(err)
	}
	return err
}

func header(m *outbox.Message) nats.Header {
	h := make(nats.Header, len(m.Headers)+1)
	for _, one := range m.Headers {
		h[one.Key] = append(h[one.Key], string(one.Value))
	}
	h.Set(jetstream.MsgIDHeader, m.Topic+" "+m.ID)
	return h
}
