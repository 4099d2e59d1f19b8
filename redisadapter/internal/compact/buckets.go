// Package compact is the layout that keeps 8 bytes of a finished key, in sets of some hundred keys.
package compact

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// keysPerBucket is how many members a bucket is planned to have. Redis keeps sets of up
	// to 512 integers as sorted arrays (set-max-intset-entries), and a larger set costs eight
	// times the memory. This mean suits 0.1 to 2 times as many keys as planned. With a tenth of
	// them, 23 members share the 112 to 144 bytes that a bucket itself costs: a larger mean would
	// be cheaper. With twice as many, 3 buckets in 100 have more than 512 members, which costs 2
	// bytes a key: with a larger mean it would soon cost 30.
	keysPerBucket = 235
	// minSecret bounds Options.Secret, and maxExpected Options.ExpectedKeys: 17 million
	// shards, whose bookkeeping takes 2.1 MB a generation.
	minSecret   = 16
	maxExpected = 4_000_000_000
	// minWindow bounds Options.Window: a shorter one would be near an edge of a generation all the
	// time.
	minWindow = 100 * time.Millisecond
	// maxSkew is by how much the clocks of two servers may differ: of two masters, or of a
	// master and the replica that is promoted in its place.
	maxSkew = 2 * time.Second
	// receiptLife is how long a record is left next to a member that a script has added, so that
	// the same change finds it when it is sent again. Package dedup and the client stop sending
	// before that.
	receiptLife = 30 * time.Second
	// ownBy is how much longer a claim must last so that its lease may be dropped by DEL, which
	// does not look at what it drops. By default the client waits for an answer for a shorter time.
	ownBy = 4 * time.Second
)

// Layout is [engine.Layout] of buckets, of which finished keys are members.
type Layout struct {
	prefix string
	secret [sha256.Size]byte // derived from Options.Secret
	shards uint64
	window int64 // ms
	skew   int64 // ms
	// mask says which bits of the digest are kept: all, except in a test that wants collisions.
	mask uint64
	// ends remembers the buckets that have their expiry.
	ends finite
	// filter remembers which digests closed buckets do not have.
	filter closedBucketFilter
	// dropBy is how much longer a member must last so that a plain command may drop its lease. A
	// client may send that command again after its reply was lost.
	dropBy time.Duration
}

// New returns the layout of the keys of a prefix. [Check] has accepted the secret, of which only a
// digest is kept, the window, and the number of expected keys.
func New(prefix string, secret []byte, window time.Duration, expected int) *Layout {
	ms := redisscript.Millis(window)
	return &Layout{
		prefix: prefix, secret: sha256.Sum256(append([]byte("onceward/compact/1:"), secret...)),
		shards: uint64(Shards(expected)), window: ms, skew: min(maxSkew.Milliseconds(), ms/4),
		mask: 1<<64 - 1, dropBy: time.Minute, filter: closedBucketFilter{life: filterLife},
	}
}

// bucketPosition is where a key is found.
type bucketPosition struct {
	shard  uint64
	member int64
}

// place digests an ID. The input of the hash has a fixed length, so nobody can append to it. The
// member and the shard are different bits of the hash, so only keys of one shard can collide.
func (b *Layout) place(id driver.ID) bucketPosition {
	var text [sha256.Size + len(id)]byte
	copy(text[:], b.secret[:])
	copy(text[sha256.Size:], id[:])
	h := sha256.Sum256(text[:])
	return bucketPosition{
		shard:  binary.BigEndian.Uint64(h[8:]) % b.shards,
		member: int64(binary.BigEndian.Uint64(h[:]) & b.mask),
	}
}

// appendTag appends what all keys of a shard begin with. The shard is in braces, so that
// a bucket and the leases of its keys share a slot.
func (b *Layout) appendTag(buf []byte, p bucketPosition) []byte {
	buf = append(append(buf, b.prefix...), ":{"...)
	return append(strconv.AppendUint(buf, p.shard, 10), "}:"...)
}

// appendLease appends the name of the lease, or of the record, of a key. It has 22
// characters behind the tag, and a bucket at most 19 digits.
func (b *Layout) appendLease(buf []byte, p bucketPosition, id driver.ID) []byte {
	return base64.RawURLEncoding.AppendEncode(b.appendTag(buf, p), id[:])
}

// AppendKey implements [engine.Layout].
func (b *Layout) AppendKey(buf []byte, id driver.ID) []byte {
	return b.appendLease(buf, b.place(id), id)
}

// appendBucket appends the name of a bucket.
func (b *Layout) appendBucket(buf []byte, p bucketPosition, generation int64) []byte {
	return strconv.AppendInt(b.appendTag(buf, p), generation, 10)
}

// end returns when a bucket of a generation expires: later than every view that names it, by any
// server's clock. The scripts compute the same.
func (b *Layout) end(generation int64) int64 { return (generation+2)*b.window + 2*b.skew }

// in returns the buckets that a view has for a key, as arguments of a script.
func (b *Layout) in(v generations, p bucketPosition) *redisscript.Buckets {
	keys := make([]string, 0, v.last-v.first+1)
	for g := v.first; g <= v.last; g++ {
		keys = append(keys, string(b.appendBucket(nil, p, g)))
	}
	return &redisscript.Buckets{
		Keys: keys, First: v.first, Member: strconv.FormatInt(p.member, 10),
		Window: redisscript.FromMillis(b.window), Skew: redisscript.FromMillis(b.skew),
	}
}

// Shards returns the number of shards that gives each bucket 235 of the expected keys.
func Shards(expected int) int { return (expected + keysPerBucket - 1) / keysPerBucket }

// Check names the first option that the layout cannot use.
func Check(secret []byte, window time.Duration, expected int) error {
	switch {
	case len(secret) < minSecret:
		return wire.Input("Options.Secret",
			fmt.Sprintf("has %d bytes; the layout compact needs at least %d", len(secret), minSecret))
	case window < minWindow || redisscript.Millis(window) >= redisscript.MaxMillis/4:
		return wire.Input("Options.Window",
			fmt.Sprintf("is %v; the layout compact needs the Window of dedup.Config, of %v to 35 years",
				window, minWindow))
	case expected < 1 || int64(expected) > maxExpected:
		return wire.Input("Options.ExpectedKeys",
			fmt.Sprintf("is %d; the layout compact needs the number of keys in a window, 1 to %d",
				expected, int64(maxExpected)))
	}
	return nil
}

// Settings are what all processes that share a prefix must agree on, a line each. They do not show
// the secret: 64 bits of a digest of its derived key tell it from another secret.
func (b *Layout) Settings() []string {
	sum := sha256.Sum256(append([]byte("onceward/layout/1:"), b.secret[:]...))
	return []string{fmt.Sprint("window_ms ", b.window), fmt.Sprint("shards ", b.shards),
		"secret " + hex.EncodeToString(sum[:8])}
}

// member reports whether a change makes its key a member. A failure gets a record.
func member(c *driver.Finish) bool { return c.State == driver.StateSucceeded }

// CheckFinish implements [engine.Layout].
func (b *Layout) CheckFinish(c *driver.Finish) error {
	if redisscript.Millis(c.Window) != b.window && c.State != driver.StateReleased {
		return wire.Input("Window", fmt.Sprintf("is %v; this store has one for all keys, %v", c.Window,
			redisscript.FromMillis(b.window)))
	}
	switch {
	case member(c) && len(c.Result) > 0:
		return wire.Input("Result", "is set; the layout Compact keeps none")
	case c.Fingerprint != (driver.Fingerprint{}):
		return wire.Input("Fingerprint", "is set; the layout Compact keeps none")
	}
	return nil
}

// CheckClaim implements [engine.Layout].
func (b *Layout) CheckClaim(r *driver.ClaimRequest) error {
	switch {
	case r.ResultLimit != 0:
		return wire.Input("ResultLimit",
			fmt.Sprintf("is %d; the layout Compact keeps no results", r.ResultLimit))
	case r.Window != 0 && redisscript.Millis(r.Window) != b.window:
		return wire.Input("Window", fmt.Sprintf("is %v; this store has one for all keys, %v", r.Window,
			redisscript.FromMillis(b.window)))
	case r.Fingerprint != (driver.Fingerprint{}):
		return wire.Input("Fingerprint", "is set; the layout Compact keeps none")
	}
	return nil
}

// memberRecord is what is known of a member.
func (b *Layout) memberRecord(at wire.Reading, generation int64) driver.Record {
	return driver.Record{State: driver.StateSucceeded, Attempt: 1,
		Remaining: b.remembered(at, generation)}
}
