package redisadapter

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ErrAmnesia: the server has lost claims or records, or may have. With [FailClosed], a claim is
// then Unknown with this error. A key that is on record still answers Duplicate.
var ErrAmnesia = wire.ErrAmnesia

// Amnesia is what happens to claims when the server has lost data.
type Amnesia uint8

const (
	// GuardOff looks for nothing, needs no canary and costs nothing. It is the default:
	// a server that comes back empty then grants every redelivered message again.
	GuardOff Amnesia = iota
	// FailClosed grants no claim: it is Unknown with [ErrAmnesia], until
	// Options.AmnesiaFor is over or an operator calls [ClearAmnesia]. New accepts a server
	// that may evict keys only with it: see Options.AllowEviction.
	FailClosed
	// AllowAndFlag grants claims and reports each batch of them: in a finding with the code
	// flagged_claims, and in Health.Flagged.
	AllowAndFlag
	// AskSecondary asks Options.Secondary about each claim before it is granted.
	AskSecondary
)

// String returns the lower-case name.
func (a Amnesia) String() string { return guard.Policy(a).String() }

// Init prepares a server, or a Cluster, for the amnesia guard: it creates the canaries of
// opts.Prefix. Call it once, by hand or from the step that deploys for the first time. Never call
// it when a process starts: a server that has lost everything looks like a new one, and an Init on
// every start would treat it as one.
//
// When all of them exist nothing is changed and the error is nil. When only some do, data has been
// lost, and Init refuses: see [ClearAmnesia]. Init also records how many keys the server has
// evicted so far, none of which were ours. It costs up to four round trips (on a Cluster per
// master, in parallel).
func Init(ctx context.Context, client redis.UniversalClient, opts Options) error {
	c, err := operate(ctx, client, opts)
	if err != nil {
		return err
	}
	var missing []int
	for i, s := range c.Read(ctx) {
		switch {
		case s.Err != nil:
			return fmt.Errorf("redisadapter: Init cannot look at canary %d of %d: %w", i+1,
				len(c.Keys), s.Err)
		case s.Missing:
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 && len(missing) < len(c.Keys) {
		return fmt.Errorf("%w: %d of %d are missing at Init; find out what was lost, then call ClearAmnesia",
			ErrAmnesia, len(missing), len(c.Keys))
	}
	if len(missing) == 0 {
		return nil
	}
	if err := c.RecordEvictions(ctx); err != nil { // before there is a canary: New needs that
		return fmt.Errorf("redisadapter: Init cannot record what was evicted: %w", err)
	}
	if err := c.Write(ctx, missing, true, func() string {
		return guard.NewCanary(guard.CanaryOK, time.Time{})
	}); err != nil {
		return fmt.Errorf("redisadapter: Init cannot write a canary: %w", err)
	}
	return nil
}

// ClearAmnesia ends amnesia before Options.AmnesiaFor is over: the operator has restored
// the data, or accepts that effects of redelivered messages run again. It gives every canary a new
// value, which all processes notice: with their next batch, or within a second of the next batch
// that they refuse. Calling it again is harmless. It costs one round trip.
func ClearAmnesia(ctx context.Context, client redis.UniversalClient, opts Options) error {
	c, err := operate(ctx, client, opts)
	if err != nil {
		return err
	}
	all := make([]int, len(c.Keys))
	for i := range all {
		all[i] = i
	}
	if err := c.Write(ctx, all, false, func() string {
		return guard.NewCanary(guard.CanaryAck, time.Time{})
	}); err != nil {
		return fmt.Errorf("redisadapter: ClearAmnesia cannot write a canary: %w", err)
	}
	return nil
}

// operate checks the arguments of an operator's call.
func operate(ctx context.Context, client redis.UniversalClient,
	opts Options) (*guard.Canaries, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	// The caller may pass the options of New, or only the prefix.
	opts, err := Options{Prefix: opts.Prefix}.complete()
	if err != nil {
		return nil, err
	}
	return guard.NewCanaries(client, opts.Prefix), nil
}

// ErrNoCanary: [New] was asked to guard against amnesia and found no canary. Either this is the
// first start of the deployment, and [Init] was forgotten, or the server has lost all it had. Only
// the operator can know which.
var ErrNoCanary = guard.ErrNoCanary
