package lease

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/redisscript"
)

const (
	// DefaultPrefix begins the name of every key, unless Options.Prefix says otherwise.
	DefaultPrefix = "ow-lease"
	// DefaultHold is the default of Options.Hold.
	DefaultHold = time.Minute

	minTTL  = 10 * time.Millisecond
	maxTTL  = 365 * 24 * time.Hour
	maxKey  = 255
	maxAsks = 4 // how often one request is sent before its caller is told
)

// Options of a [Client]. The zero value is ready for use.
type Options struct {
	// Prefix begins the name of every key in Redis: 1-64 bytes of letters, digits, '_',
	// '.', '-'. Default DefaultPrefix.
	Prefix string
	// Hold is how long the fence is remembered after a lease has ended. Fences start from the
	// server's clock, so they also grow when nothing is remembered. The exceptions are a clock that
	// was set back meanwhile, and a failover to a server whose clock is behind: Hold must exceed
	// such a step. Default DefaultHold.
	Hold time.Duration
}

// Client acquires leases. It is safe for concurrent use, starts no goroutine and needs no
// closing; the Redis client belongs to the caller.
type Client struct {
	runner *redisscript.Runner
	opts   Options
}

// New returns a Client, and sends nothing. A nil client, a *redis.Ring (which moves keys
// between servers, and so forgets leases), a bad prefix and a negative hold are an
// [*InputError].
//
// Leave the retries of the Redis client on. On a Cluster set its ClusterStateReloadInterval
// to a second or two: with the default of a minute, the client asks a master that hangs for
// a minute after its replica has been promoted.
func New(client redis.UniversalClient, opts Options) (*Client, error) {
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, &InputError{"client", problem}
	}
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	if problem := redisscript.PrefixProblem(opts.Prefix); problem != "" {
		return nil, &InputError{"Options.Prefix", problem}
	}
	if opts.Hold < 0 {
		return nil, &InputError{"Options.Hold", "is negative"}
	}
	if opts.Hold == 0 {
		opts.Hold = DefaultHold
	}
	return &Client{runner: redisscript.NewRunner(client), opts: opts}, nil
}

// Acquire asks for the lease of key for ttl, once: it does not wait for its turn. It
// costs one round trip.
//
// The key is 1-255 bytes of printable UTF-8 (Redis gets a digest of it). The ttl is from
// 10 ms to a year. It should be a small multiple of the longest pause the holder may
// suffer, since [Lease.KeepAlive] renews it. Anything else is an [*InputError].
//
// When somebody else holds the lease, the error is a [*HeldError]. A request that was
// not answered is sent again a few times with the same token, until ctx or the ttl is
// over. Any other error leaves open whether the lease was gained; if it was, it lapses
// after ttl.
func (c *Client) Acquire(ctx context.Context, key string, ttl time.Duration) (*Lease, error) {
	if err := checkAcquire(ctx, key, ttl); err != nil {
		return nil, err
	}
	l := &Lease{client: c, key: key, redisKey: c.redisKey(key), ttl: ttl}
	_, _ = rand.Read(l.token[:]) // never fails since Go 1.24
	l.until = l.validUntil(time.Now())
	reply, err := l.ask(ctx, redisscript.NewClaim(l.redisKey,
		&redisscript.ClaimArgs{Token: l.token, Lease: ttl, Hold: c.opts.Hold}))
	if err != nil {
		return nil, fmt.Errorf("lease: acquire: %w", err)
	}
	switch reply.Answer {
	case "in_flight":
		return nil, &HeldError{Remaining: reply.Left}
	case "acquired", "mine":
	default:
		return nil, fmt.Errorf("lease: acquire: the key holds no lease (%s)", reply.Answer)
	}
	l.fence = redisscript.Fence(reply.Record)
	return l.begin(ctx, reply.Answer == "mine")
}

// begin decides whether a lease that the server granted can be used.
func (l *Lease) begin(ctx context.Context, asked bool) (*Lease, error) {
	if asked || l.Remaining() <= 0 {
		// An earlier send won the lease, or the answer came late: part of the lease has passed, and
		// if the server was frozen in between, perhaps all of it.
		if err := l.Renew(ctx); err != nil {
			return nil, fmt.Errorf("lease: acquire: granted too late: %w", err)
		}
	}
	return l, nil
}

// redisKey returns the name of a lease: a digest, so that it has one size, carries nothing in
// clear, and nobody chooses its Cluster slot.
func (c *Client) redisKey(key string) string {
	sum := sha256.Sum256([]byte("onceward lease v1\x00" + key))
	return c.opts.Prefix + ":{" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "}"
}

func checkAcquire(ctx context.Context, key string, ttl time.Duration) error {
	switch {
	case ctx == nil:
		return &InputError{"ctx", "is nil"}
	case ttl < minTTL:
		return &InputError{"ttl", fmt.Sprintf("is %v; at least %v is needed", ttl, minTTL)}
	case ttl > maxTTL:
		return &InputError{"ttl", fmt.Sprintf("is %v; at most %v is allowed", ttl, maxTTL)}
	case key == "":
		return &InputError{"key", "is empty"}
	case len(key) > maxKey:
		return &InputError{"key",
			fmt.Sprintf("has %d bytes, at most %d are allowed", len(key), maxKey)}
	case !utf8.ValidString(key):
		return &InputError{"key", "is not valid UTF-8"}
	}
	for i, r := range key {
		if !unicode.IsPrint(r) {
			return &InputError{"key",
				fmt.Sprintf("has the non-printable character %U at byte %d", r, i)}
		}
	}
	return nil
}

// run sends one script.
func (c *Client) run(ctx context.Context, call redisscript.Call) redisscript.Reply {
	return c.runner.Run(ctx, []redisscript.Call{call})[0]
}

// ask sends one script for the lease. While there is no answer, and sending again may help, it
// does so: with the same token that is harmless.
func (l *Lease) ask(ctx context.Context, call redisscript.Call) (redisscript.Reply, error) {
	retry := backoff.Policy{Base: 10 * time.Millisecond, Cap: 250 * time.Millisecond}
	var prev time.Duration
	for try := 0; ; try++ {
		reply := l.client.run(ctx, call)
		if reply.Err == nil || try+1 == maxAsks || !mayPass(ctx, reply.Err) || l.Remaining() <= 0 {
			return reply, reply.Err
		}
		prev = retry.Delay(try, prev, nil)
		if err := backoff.Sleep(ctx, prev); err != nil {
			return reply, fmt.Errorf("%w (last try: %w)", err, reply.Err)
		}
	}
}

// mayPass reports whether the cause of err may pass by itself, so that asking again may help.
func mayPass(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, redisscript.ErrUnreadable) &&
		!redis.HasErrorPrefix(err, "NOPERM") && !redis.HasErrorPrefix(err, "NOAUTH")
}
