package redisadapter

import (
	"context"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/preflight"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ErrBreakerOpen: the last calls have not reached the server, so this one was not sent.
// It is the error of an item, which is Unknown; asking again later is safe.
var ErrBreakerOpen = wire.ErrBreakerOpen

// Classify names the trouble that an error of a [Store] or of go-redis reports, for metrics and
// alarms. The error may be wrapped. Except after "unreadable", the same call with the same token
// may succeed later, at the latest once somebody has repaired the server. Classify is cheap, and
// safe for concurrent use. It returns:
//
//   - "" for nil.
//   - "context": the caller's context ended first.
//   - "timeout": the server, or a free connection of the pool, took too long.
//   - "network": the connection was refused or reset, or it ended in the middle of a reply. A
//     server at maxclients closes new connections, and its reason is often lost with them.
//   - "loading": the server reads its data set after a start.
//   - "read_only": the server is a replica. A failover is under way, or the client is connected to
//     the wrong server.
//   - "misconf": the server cannot save to disk, and refuses writes because of that.
//   - "full": the server is at maxmemory and refuses new claims. The error is a
//     [driver.ErrStoreFull].
//   - "cluster_down": the Cluster has no majority, or no master serves the slot.
//   - "try_again": the slot is being moved.
//   - "no_replicas": fewer replicas are in sync than min-replicas-to-write asks for.
//   - "master_down": a replica has lost its master and serves nothing.
//   - "moved": the slot is elsewhere (MOVED, ASK), and the client could not follow. For example, it
//     is a client for a single server, and the server is part of a Cluster.
//   - "busy": the server runs a script, or has too many clients.
//   - "denied": the user may not do this (NOAUTH, WRONGPASS, NOPERM). After NOPERM the end of a
//     claim is not sent again.
//   - "unreadable": the key holds no record of a version that this package can read. The error is a
//     [driver.ErrUnreadable].
//   - "amnesia": the server has lost data, and Options.Amnesia is FailClosed, or the second store
//     did not answer. The error is an [ErrAmnesia].
//   - "breaker": nothing was sent, because the last calls did not reach the server. The error is an
//     [ErrBreakerOpen].
//   - "other": any other error.
func Classify(err error) string { return wire.Classify(err) }

// RefusedError is the error of [New] for servers and settings that it does not accept.
type RefusedError struct {
	// Findings because of which New refuses; at least one.
	Findings []preflight.Finding
}

// Error implements error.
func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "redisadapter: refused: " + strings.Join(lines, "\n")
}

// New refuses a server because of a finding with one of these codes: always, or with
// Options.Strict. The rule for an eviction policy without Options.Strict is in refuses.
var (
	alwaysRefused = map[string]bool{
		wire.CodeVersion: true, wire.CodeRole: true, wire.CodeReplicaReads: true,
	}
	strictlyRefused = map[string]bool{
		wire.CodeLoading: true, wire.CodeEvictionPolicy: true, wire.CodeEvicted: true,
		wire.CodeNoPersistence: true,
		wire.CodeRestartWipes:  true, wire.CodeAppendFailed: true, wire.CodePlaintext: true,
	}
)

// refuse returns an error for the findings that New does not accept, and hands on the others.
// counted reports whether all servers say how many keys they have evicted.
func refuse(findings []preflight.Finding, opts Options, client redis.UniversalClient,
	counted bool) error {
	_, cluster := client.(*redis.ClusterClient)
	var refused []preflight.Finding
	for _, f := range findings {
		if refuses(f.Code, opts, cluster, counted) {
			refused = append(refused, f)
		} else {
			opts.OnFinding(f)
		}
	}
	if len(refused) > 0 {
		return &RefusedError{refused}
	}
	return nil
}

// refuses reports whether New does not accept a finding. In the first seconds after a failover of
// a Cluster the client's list of masters is out of date: if a replica is on it, that is not the
// caller's mistake. A server that evicts is accepted with Options.AllowEviction, and behind a guard
// that closes when the server evicts.
func refuses(code string, opts Options, cluster, counted bool) bool {
	switch {
	case code == wire.CodeEvictionPolicy && opts.AllowEviction:
		return false
	case code == wire.CodeEvictionPolicy && !opts.Strict:
		return opts.Amnesia != FailClosed || !counted
	case code == wire.CodeRole && cluster:
		return opts.Strict
	}
	return alwaysRefused[code] || opts.Strict && strictlyRefused[code]
}

// logFinding is the default of Options.OnFinding.
func logFinding(f preflight.Finding) {
	level := slog.LevelWarn
	if f.Severity == preflight.Note {
		level = slog.LevelDebug
	}
	slog.LogAttrs(context.Background(), level, "redisadapter: "+f.Detail,
		slog.String("code", f.Code), slog.String("severity", f.Severity.String()),
		slog.String("server", f.Server), slog.String("why", f.Why), slog.String("fix", f.Fix))
}
