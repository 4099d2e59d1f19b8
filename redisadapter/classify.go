package redisadapter

import "github.com/onceward/onceward/redisadapter/internal/wire"

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
//     [dedup.ErrStoreFull].
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
//     [dedup.ErrUnreadable].
//   - "amnesia": the server has lost data, and Options.Amnesia is FailClosed, or the second store
//     did not answer. The error is an [ErrAmnesia].
//   - "breaker": nothing was sent, because the last calls did not reach the server. The error is an
//     [ErrBreakerOpen].
//   - "other": any other error.
func Classify(err error) string { return wire.Classify(err) }
