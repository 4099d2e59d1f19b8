package watermilladapter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/onceward/onceward/dedup"
)

// ErrOutput reports that a handler has returned messages although Config.NoOutput is set. They are
// not published. The handled message is not recorded, so it is redelivered.
var ErrOutput = errors.New("watermilladapter: a handler returned messages, against Config.NoOutput")

// Config configures a [Once]. The zero value claims each message by its UUID for each handler.
type Config struct {
	// Key returns the id of a message. All copies of a message must have the same id, and each
	// operation must have another id. Its error is returned as the handler's error; an empty key is
	// an [*dedup.InputError]. It may be called concurrently. Default: the message's UUID, which
	// stays the same in a redelivery; a producer that sends a message again should send the same
	// UUID.
	Key func(*message.Message) (string, error)

	// Scope separates handlers that each process every message. Its error is returned as the
	// handler's error. It may be called concurrently. Default: the name of the Router's handler; a
	// message without one is an error.
	Scope func(*message.Message) (string, error)

	// Fingerprint binds a key to the payload. A message with the same key and another payload then
	// gets [dedup.ErrMismatch], and is not a duplicate. Default false.
	Fingerprint bool

	// NoOutput declares that no handler returns messages. The store then keeps only the fact that a
	// message is done. Required with a Deduper that keeps no results ([dedup.Config].SeenOnly).
	// Default false.
	NoOutput bool
}

// Once is the middleware. It may be used by any number of handlers and Routers at the same
// time.
type Once struct {
	d   *dedup.Deduper
	cfg Config
}

// New returns the middleware of a Deduper. The caller closes the Deduper. It refuses a nil Deduper,
// and one that keeps no results unless cfg.NoOutput is set.
func New(d *dedup.Deduper, cfg Config) (*Once, error) {
	switch {
	case d == nil:
		return nil, errors.New("watermilladapter: the Deduper is nil")
	case d.Config().SeenOnly && !cfg.NoOutput:
		return nil, errors.New(
			"watermilladapter: the Deduper keeps no results, so messages that a handler returns could be lost: set Config.NoOutput if none does")
	}
	if cfg.Key == nil {
		cfg.Key = func(m *message.Message) (string, error) { return m.UUID, nil }
	}
	if cfg.Scope == nil {
		cfg.Scope = handlerName
	}
	return &Once{d: d, cfg: cfg}, nil
}

func handlerName(m *message.Message) (string, error) {
	name := message.HandlerNameFromCtx(m.Context())
	if name == "" {
		return "", errors.New(
			"watermilladapter: the message comes from no Router's handler: set Config.Scope")
	}
	return name, nil
}

// stored is a returned message as the record keeps it.
type stored struct {
	UUID     string           `json:"u"`
	Metadata message.Metadata `json:"m,omitempty"`
	Payload  []byte           `json:"p,omitempty"`
}

// Middleware wraps a handler: a message.HandlerMiddleware. While the handler runs, its message has
// the context of the attempt: it is canceled when the lease is lost, and package dedup's functions
// (MarkIrreversible, Step, FromContext) find the attempt in it.
func (o *Once) Middleware(next message.HandlerFunc) message.HandlerFunc {
	if o.cfg.NoOutput {
		return func(m *message.Message) ([]*message.Message, error) {
			return nil, once(o, m, func() (struct{}, error) {
				out, err := next(m)
				if err == nil && len(out) > 0 {
					err = ErrOutput
				}
				return struct{}{}, err
			}, nil)
		}
	}
	return func(m *message.Message) (out []*message.Message, err error) {
		err = once(o, m, func() ([]stored, error) {
			made, err := next(m)
			keep := make([]stored, len(made))
			for i, one := range made {
				keep[i] = stored{one.UUID, one.Metadata, one.Payload}
			}
			out = made
			return keep, err
		}, func(kept []stored) {
			if out != nil { // this call has run the handler
				return
			}
			for _, one := range kept {
				again := message.NewMessage(one.UUID, one.Payload)
				for key, value := range one.Metadata {
					again.Metadata.Set(key, value)
				}
				out = append(out, again)
			}
		})
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// once runs a handler under its message's claim. It passes the messages that the handler has
// returned, now or in an earlier run, to hand.
func once[T any](o *Once, m *message.Message, run func() (T, error), hand func(T)) error {
	key, err := o.cfg.Key(m)
	if err != nil {
		return fmt.Errorf("watermilladapter: the key of message %s: %w", m.UUID, err)
	}
	scope, err := o.cfg.Scope(m)
	if err != nil {
		return fmt.Errorf("watermilladapter: the scope of message %s: %w", m.UUID, err)
	}
	opts := []dedup.Option{dedup.WithScope(scope)}
	if o.cfg.Fingerprint {
		opts = append(opts, dedup.WithFingerprint(m.Payload))
	}
	before := m.Context()
	res, err := dedup.DoResult(before, o.d, key, func(ctx context.Context) (T, error) {
		m.SetContext(ctx)
		defer m.SetContext(before)
		return run()
	}, opts...)
	if err != nil {
		return err
	}
	if hand != nil {
		hand(res.Value)
	}
	return nil
}

// Poisoned reports whether a message whose handling returned err is done anyway
// ([dedup.CanAck]): its handler has failed for good, now or earlier, or its messages were not kept
// ([dedup.ErrNoResult]). It is a filter for watermill's PoisonQueueWithFilter. After a lost lease,
// or with an unknown outcome, it reports false, and the message is redelivered.
func Poisoned(err error) bool { return err != nil && dedup.CanAck(err) }

// repository gives a Deduper the interface that watermill's Deduplicator needs.
type repository struct {
	d     *dedup.Deduper
	scope string
}

var _ middleware.ExpiringKeyRepository = repository{}

// Repository returns an ExpiringKeyRepository over any of package dedup's stores, for a
// middleware.Deduplicator, whose handlers stay as they are. All processes share it, and its window
// is [dedup.Config].Window. scope separates Deduplicators that share a Deduper, and may be empty.
//
// A Deduplicator asks the Repository before the handler runs, and never again: if the handler then
// fails or dies, the message is lost. With [Once] it is not lost. Use a Repository only for
// messages that may be lost, and with a KeyFactory that distinguishes messages
// (NewMessageHasherSHA256; not the default).
func Repository(d *dedup.Deduper, scope string) (middleware.ExpiringKeyRepository, error) {
	if d == nil {
		return nil, errors.New("watermilladapter: the Deduper is nil")
	}
	return repository{d, scope}, nil
}

// IsDuplicate records the key, and reports whether it was recorded before in the window. Of
// concurrent calls with a new key, one gets false. When the store is unavailable it returns an
// error. A key may be any bytes, as those of watermill's hashers are, so the call claims its
// SHA-256 in hex.
func (r repository) IsDuplicate(ctx context.Context, key string) (bool, error) {
	sum := sha256.Sum256([]byte(key))
	res, err := dedup.DoResult(ctx, r.d, hex.EncodeToString(sum[:]),
		func(context.Context) (struct{}, error) {
			return struct{}{}, nil
		}, dedup.WithScope(r.scope))
	switch {
	case errors.Is(err, dedup.ErrInFlight): // the other of two concurrent calls is first
		return true, nil
	case err != nil:
		return false, err
	}
	return res.Outcome == dedup.Duplicate, nil
}
