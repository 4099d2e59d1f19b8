package guard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// servers are the masters that have been seen, by run id. A run id lasts as long as the
// process.
type servers struct {
	runs  map[string]*serverState
	asked time.Time // last, with success
	// owed is a loss for which the guard could not be closed yet.
	owed bool
}

// serverState is what was last seen of one server.
type serverState struct {
	// replication id, which lasts until a replica is promoted.
	replication string
	// accounted is the number of evicted keys for which the guard was closed, if it is on. reported
	// is the number that was reported to Options.OnFinding.
	accounted, reported uint64
}

// Connections returns a number that changes whenever the client has dialled, or has dropped a
// connection. It needs no hook in a client that is not ours, and no round trip.
func Connections(client redis.UniversalClient) uint64 {
	s := client.PoolStats()
	n := uint64(s.Misses) + uint64(s.StaleConns)
	if p := s.PipelineStats; p != nil {
		n += uint64(p.Misses) + uint64(p.StaleConns)
	}
	return n
}

// dialled reports whether there are new connections, over which no server was asked yet who it is.
func (g *Amnesia) dialled() bool { return Connections(g.Client) != g.conns.Load() }

// lookDue reports whether the servers must be asked again before claims are granted. They must be
// asked each time while one of them may evict keys, so that no claim is granted after an eviction
// that is not accounted for. Otherwise they are asked every lookEvery, because an operator may
// change the policy of a running server. The call that wins claims asks them itself: New starts no
// goroutine, because nobody would stop it.
func (g *Amnesia) lookDue() bool {
	if g.evicts.Load() {
		return true
	}
	last := g.looked.Load()
	if last != nil && time.Since(*last) < lookEvery {
		return false
	}
	now := time.Now()
	return g.looked.CompareAndSwap(last, &now) // one call asks for all
}

// identify asks every server who it is, and how many keys it has evicted. The error says that no
// server answered, or, where keys may be evicted, that some server did not.
func (g *Amnesia) identify(ctx context.Context) error {
	conns := Connections(g.Client)
	var mu sync.Mutex
	heard := make(map[string]wire.Info)
	_, err := wire.EachServer(ctx, g.Client,
		func(ctx context.Context, addr string, node redis.UniversalClient) error {
			fields, err := wire.AskInfo(ctx, node)
			if err == nil {
				mu.Lock()
				heard[addr] = fields
				mu.Unlock()
			}
			return err
		})
	mu.Lock() // go-redis waits for all its visits, but the race detector wants to know
	defer mu.Unlock()
	if err != nil && (len(heard) == 0 || g.evicts.Load()) {
		return fmt.Errorf("redisadapter: cannot ask who the server is: %w", err)
	}
	return g.Meet(ctx, heard, conns)
}

// Meet compares servers with those that were known. It closes the guard for a loss before it notes
// the loss as known. Otherwise a call that looks at the same moment could find nothing new, and the
// guard still open.
func (g *Amnesia) Meet(ctx context.Context, heard map[string]wire.Info, conns uint64) error {
	g.Memory.Evicting(slices.Collect(maps.Values(heard))...)
	found, lost := g.compareServers(heard, conns)
	for _, f := range found {
		g.Report(f)
	}
	if !lost {
		return nil
	}
	if err := g.lose(ctx); err != nil {
		return err
	}
	g.account(ctx, heard)
	return nil
}

// compareServers returns what is new about servers, and whether they have lost keys that
// the guard does not know of.
func (g *Amnesia) compareServers(heard map[string]wire.Info,
	conns uint64) (found []preflight.Finding, lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.known.runs == nil
	if first {
		g.known.runs = make(map[string]*serverState)
	}
	evicts := false
	for addr, i := range heard {
		evicts = evicts || MayEvict(i)
		run := runOf(addr, i)
		if run == "" {
			continue // an embedded server
		}
		evicted, _ := i.Count("evicted_keys")
		is, seen := g.known.runs[run]
		if !seen {
			is = g.newServer(run, i, evicted, first)
			g.known.runs[run] = is
		}
		if !first && (!seen || is.replication != i["master_replid"]) {
			found = append(found, wire.Advices.Finding(wire.CodeSuspect, addr,
				"run id %s, replication id %s have not been seen before", run, i["master_replid"]))
			g.known.owed = g.known.owed || !seen && forgetful(i, time.Since(g.known.asked))
		}
		is.replication = i["master_replid"]
		if evicted > is.reported {
			found = append(found, wire.Advices.Finding(wire.CodeEvicted,
				addr, "%d keys have been evicted since the last look", evicted-is.reported))
			is.reported = evicted
		}
		lost = lost || evicted > is.accounted
	}
	g.evicts.Store(evicts)
	g.known.asked = time.Now()
	if slices.ContainsFunc(found, isSuspect) {
		g.BeSuspicious()
	}
	g.conns.Store(conns)
	return found, lost || g.known.owed
}

func isSuspect(f preflight.Finding) bool { return f.Code == wire.CodeSuspect }

// newServer returns the state of a server that was not seen before. The keys that it has evicted so
// far count if they may have been ours. For a server that the first look finds, the evictions
// beyond the guard's record count. For a server that was started after the last look, all evictions
// count. For a server that was started before the last look, no evictions count: it is a promoted
// replica, which evicted in an earlier life as a master.
func (g *Amnesia) newServer(run string, i wire.Info, evicted uint64, first bool) *serverState {
	is := &serverState{accounted: evicted, reported: evicted}
	switch uptime, known := i.Count("uptime_in_seconds"); {
	case first && g.On():
		is.accounted = min(g.recorded[run], evicted)
		is.reported = is.accounted
	case !first && known && time.Duration(uptime)*time.Second < time.Since(g.known.asked):
		is.accounted, is.reported = 0, 0
	}
	return is
}

// account notes, here and in the record of evictions, that the guard has been closed for all keys
// that servers had evicted when they answered.
func (g *Amnesia) account(ctx context.Context, heard map[string]wire.Info) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for addr, i := range heard {
		if is := g.known.runs[runOf(addr, i)]; is != nil {
			evicted, _ := i.Count("evicted_keys")
			is.accounted = max(is.accounted, evicted)
		}
	}
	g.known.owed = false
	if g.On() {
		_ = g.writeEvictions(ctx, heard) // without it, the next process to start closes once more
	}
}

// runOf names a server: by its run id, or where a service hides that, by its address. An
// embedded server has no name.
func runOf(addr string, i wire.Info) string {
	if i.Embedded() {
		return ""
	}
	return cmp.Or(i["run_id"], addr)
}

// forgetful recognizes a server that has been started since the last look, without an
// append-only file: the canary may come from a snapshot, and what was written after that
// is lost. A promoted replica has usually run for longer; if not, it is taken for such a server.
func forgetful(i wire.Info, since time.Duration) bool {
	uptime, known := i.Count("uptime_in_seconds")
	return known && i["aof_enabled"] == "0" && time.Duration(uptime)*time.Second < since
}
