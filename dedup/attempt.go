package dedup

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// Attempt is what a handler can learn of the claim it runs under; see [FromContext].
type Attempt struct {
	// Key as it was claimed.
	Key string
	// Number counts the claims of the key, from 1. It is counted when claiming, so an
	// attempt that killed its process is counted too.
	Number int

	claim *Claim
}

type attemptKey struct{}

// FromContext returns the attempt whose handler runs under ctx, and false outside one or
// for a nil ctx.
func FromContext(ctx context.Context) (*Attempt, bool) {
	if ctx == nil {
		return nil, false
	}
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	return a, ok
}

// Fence returns the fencing number of the attempt; see [Claim.Fence].
func (a *Attempt) Fence() uint64 { return a.claim.Fence() }

// DownstreamKey derives an idempotency key for a call that the effect makes. It is the same
// on every attempt, different for every purpose, and does not reveal the original key. It
// is 22 characters of base64url. Name the purpose: DownstreamKey("stripe", "charge").
func (a *Attempt) DownstreamKey(purpose ...string) string {
	buf := append([]byte("onceward downstream v1"), a.claim.id[:]...)
	for _, p := range purpose {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Landed says that the effect of the attempt under ctx has happened, although the lease
// may be lost by now. Without it, a handler that returns nil counts as landed only if
// it never read its fence and its context was not yet canceled for ErrLeaseLost: a
// downstream may have refused an old fence, and that is not an effect. It reports false
// outside an attempt.
func Landed(ctx context.Context) bool {
	a, ok := FromContext(ctx)
	if ok {
		a.claim.landed.Store(true)
	}
	return ok
}

// attemptOf is what a handler learns of its claim.
func attemptOf(c *Claim) Attempt { return Attempt{Key: c.Key, Number: c.Attempt, claim: c} }
