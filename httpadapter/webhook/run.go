package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/ctxdetach"
	"github.com/onceward/onceward/internal/encrypted"
)

// The stored results of an event that is done, and of one that has failed for good.
var (
	done          = encrypted.Encode(&encrypted.Response{Status: 200})
	failedForGood = encrypted.Encode(&encrypted.Response{Tombstone: true})
)

// errCancelled: the client has gone before the handler began. Nothing has happened.
var errCancelled = errors.New("webhook: canceled before the handler began")

// errLate: the context of the handler had ended when it returned. It is never permanent.
var errLate = errors.New("canceled")

// handlerError wraps what the handler has returned, so that an error of the handler is not taken
// for one of the Runner.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return "webhook: handler: " + e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

// key returns the key under which the event is recorded: its id, if that is signed. If it is not,
// the key is a digest of what is signed, and of the type, and the id is the fingerprint. So a
// captured body under another id is refused, and a captured body under the id of a future event has
// another key than that event.
func (c *call) key() (key string, opts []dedup.Option) {
	k := c.record()
	opts = []dedup.Option{dedup.WithScope(k.Scope()),
		func(r *dedup.Request) { r.Label = c.label() }}
	if !c.id.Signed && !c.rc.cfg.Relabelled {
		opts = append(opts, dedup.WithFingerprint([]byte(c.id.ID)))
	}
	return k.Key(), opts
}

// digest is a SHA-256 of the parts, each with its length in front.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		addPart(h, p)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func addPart(h hash.Hash, p []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(p)))
	h.Write(size[:])
	h.Write(p)
}

// run claims the key and has the handler run under it. Until the handler begins, the Runner's
// context ends with the client, so a client that leaves no longer waits for a key in flight.
// Then the context leaves the client, because a provider hangs up after seconds (Slack: three)
// and sends again.
func (c *call) run() error {
	ctx, leave, end := ctxdetach.From(c.r.Context())
	defer end()
	effect := func(ctx context.Context) ([]byte, bool, error) {
		if c.left = leave(); !c.left {
			return nil, false, errCancelled
		}
		return c.effect(ctx)
	}
	key, opts := c.key()
	var err error
	c.result, err = c.rc.run.Run(ctx, key, effect, opts...)
	return err
}

// effect is one run of the handler, with a delivery of its own.
func (c *call) effect(ctx context.Context) ([]byte, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.rc.cfg.Timeout)
	defer cancel()
	c.lastFail = nil
	err := c.rc.handle(ctx, &Delivery{
		Provider: c.rc.provider.Name, Endpoint: c.rc.cfg.Endpoint,
		ID: c.id.ID, Type: c.id.Type, Sent: c.id.Sent,
		Header: c.r.Header.Clone(), Body: bytes.Clone(c.body),
	})
	switch {
	case err == nil:
		return done, false, nil
	case dedup.IsPermanent(err) && ctx.Err() == nil:
		c.lastFail = err
		return failedForGood, true, nil // a value: an error would be rolled back and lost
	case dedup.IsPermanent(err): // it may mean its cancellation, which a later delivery repairs
		err = fmt.Errorf("%w: %s", errLate, err.Error())
	}
	return nil, false, &handlerError{err}
}
