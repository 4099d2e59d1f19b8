package others_test

import (
	"context"
	"slices"

	"github.com/onceward/onceward/internal/redisproxy"
)

// rival is a library or a recipe for running the effect of a message once. promises has the
// promises of its own documentation, by scenario; docs/evidence/others.md quotes them.
type rival struct {
	name    string
	module  string // whose version is shown; "" for a recipe
	store   string
	level   string // a level of DESIGN.md, for our library
	servers servers
	open    func(ctx context.Context, w *worker) (handle, func() error, error)
	// the command whose reply gets lost; nil: it claims nothing in Redis
	claims func(redisproxy.Request) bool
	atomic bool // the effect is a row of the transaction with the record
	// the rival is for one process, and handles one message at a time
	alone bool
	// by the id of a scenario; no promise for other scenarios
	promises map[string]promise
}

// promise is the set of counts that must be zero.
type promise uint8

const (
	neverLost promise = 1 << iota
	neverDoubled
	neverStuck
	neverAny = neverLost | neverDoubled | neverStuck
)

// servers are the servers that a rival needs.
type servers uint8

const (
	onRedis servers = 1 << iota
	onPostgres
)

var rivals []*rival

func init() { // the table refers to functions that refer to it
	everywhere := func(p promise, but map[string]promise) map[string]promise {
		m := map[string]promise{}
		for _, s := range scenarios {
			m[s.id] = p
			if q, other := but[s.id]; other {
				m[s.id] = q
			}
		}
		return m
	}
	rivals = []*rival{
		{
			name: "SET NX, DEL on failure", module: goRedis, store: "redis", servers: onRedis,
			open: setNX, claims: isSetNX,
			// "Only one process can acquire it. The TTL on the in-progress state handles the case
			// where the process crashes without completing"; "Failed: clear the lock so a retry can
			// try again".
			promises: map[string]promise{
				"close": neverDoubled, "late": neverDoubled, "one": neverDoubled,
				"before": neverLost, "in": neverLost, "after": neverLost, "fails": neverLost,
			},
		},
		{
			name: "SET NX, GET when refused", module: goRedis, store: "redis", servers: onRedis,
			open: setNXGet, claims: isSetNX,
		},
		{
			name: "check, then set", module: goRedis, store: "redis", servers: onRedis,
			open: checkThenSet, claims: isPlainSet,
			promises: map[string]promise{"late": neverDoubled}, // the race is described after it
		},
		{
			name: "INSERT in a CTE", module: pgxModule, store: "postgres", servers: onPostgres,
			open: cte,
			// "The CTE is atomic — no race where two requests both think they're new"; "Retries are
			// now safe".
			promises: map[string]promise{"close": neverDoubled | neverLost,
				"late": neverDoubled | neverLost, "one": neverDoubled | neverLost},
		},
		{
			name: "redsync", module: "github.com/go-redsync/redsync/v4", store: "redis",
			servers: onRedis, open: overRedsync, claims: isSetNX,
			// "no one else can obtain the same lock until we unlock it", and it expires. A lock
			// promises neither that work is done nor what happens to it when its owner dies.
			promises: map[string]promise{"close": neverDoubled, "late": neverDoubled,
				"one": neverDoubled},
		},
		{
			name: "redislock", module: "github.com/bsm/redislock", store: "redis", servers: onRedis,
			open: overRedislock, claims: isScriptOf(3),
			promises: map[string]promise{"close": neverDoubled, "late": neverDoubled,
				"one": neverDoubled},
		},
		{
			name: "watermill Deduplicator, in memory", module: watermillModule, store: "memory",
			open: watermillMemory, alone: true,
			// It "drops similar messages if they are present", and "does not support distributed
			// operations".
			promises: map[string]promise{"close": neverDoubled, "late": neverDoubled,
				"one": neverDoubled},
		},
		{
			name: "watermill Deduplicator, keys in Redis", module: watermillModule, store: "redis",
			servers: onRedis, open: watermillRedis, claims: isSetNX,
			promises: map[string]promise{"close": neverDoubled, "late": neverDoubled,
				"one": neverDoubled, "before": neverDoubled, "in": neverDoubled,
				"after": neverDoubled},
		},
		{
			name: "fiber idempotency", module: "github.com/gofiber/fiber/v3",
			store: "redis; lock in memory", servers: onRedis, open: overFiber, claims: isPlainSet,
			// "Duplicate requests, such as retries after network issues, won't trigger the same
			// action twice on the server"; the lock is "for this process only".
			promises: map[string]promise{"late": neverDoubled, "one": neverDoubled,
				"reply": neverDoubled},
		},
		{
			name: "onceward, Claimed", module: ours, store: "redis", level: "claimed",
			servers: onRedis, open: claimed, claims: isSetNX,
			promises: everywhere(neverAny, map[string]promise{
				"in": neverLost | neverStuck, "after": neverLost | neverStuck,
				"stopped": neverLost | neverStuck, "restart": neverLost | neverStuck,
			}),
		},
		{
			name: "onceward, Atomic", module: ours, store: "postgres", level: "atomic",
			servers: onPostgres, open: inTransaction, atomic: true,
			promises: everywhere(neverAny, nil),
		},
	}
}

func rivalNamed(name string) *rival {
	at := slices.IndexFunc(rivals, func(r *rival) bool { return r.name == name })
	if at < 0 {
		return nil
	}
	return rivals[at]
}

// scenario is the faults that the messages meet.
type scenario struct {
	id       string
	name     string
	fate     fate
	copies   int
	order    order
	slots    int // processes
	capacity int // messages that a process has at a time
	restarts int // of Redis, empty
	reply    bool
}

var scenarios = []*scenario{
	{id: "close", name: "duplicates close together", copies: 3, order: together, slots: 3,
		capacity: 8},
	{id: "one", name: "the same, in one process", copies: 3, order: together,
		slots: 1, capacity: 8},
	{id: "late", name: "duplicates late", copies: 2, order: afterwards, slots: 3, capacity: 8},
	{id: "fails", name: "handler fails at first", fate: fails, copies: 2, order: scattered,
		slots: 3, capacity: 1},
	{id: "before", name: "killed before the effect", fate: killedBefore, copies: 2,
		order: scattered, slots: 3, capacity: 1},
	{id: "in", name: "killed in the effect", fate: killedIn, copies: 2, order: scattered,
		slots: 3, capacity: 1},
	{id: "after", name: "killed after the effect, before the mark", fate: killedAfter, copies: 2,
		order: scattered, slots: 3, capacity: 1},
	{id: "stopped", name: "stopped in the effect for two leases", fate: stopped, copies: 2,
		order: scattered, slots: 6, capacity: 1},
	{id: "reply", name: "reply of the claim lost", fate: replyLost, copies: 2, order: scattered,
		slots: 3, capacity: 1, reply: true},
	{id: "restart", name: "Redis killed, and started empty", copies: 2, order: scattered,
		slots: 3, capacity: 4, restarts: 2},
}

// applies reports whether a scenario can happen to a rival.
func (s *scenario) applies(r *rival) bool {
	switch {
	case s.restarts > 0:
		return r.servers&onRedis != 0
	case s.reply:
		return r.servers != 0
	}
	return true
}
