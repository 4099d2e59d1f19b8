package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// The values of [Classify], whose comment says what they mean. Metrics and alarms read them, so a
// value does not change.
const (
	classNone        = ""
	classContext     = "context"
	classTimeout     = "timeout"
	classNetwork     = "network"
	classLoading     = "loading"
	classReadOnly    = "read_only"
	classMisconf     = "misconf"
	classFull        = "full"
	classClusterDown = "cluster_down"
	classTryAgain    = "try_again"
	classNoReplicas  = "no_replicas"
	classMasterDown  = "master_down"
	classMoved       = "moved"
	classBusy        = "busy"
	classDenied      = "denied"
	classUnreadable  = "unreadable"
	classAmnesia     = "amnesia"
	classBreaker     = "breaker"
	classOther       = "other"
)

// replyClasses maps the first word of an error reply. A list, because go-redis also
// strips an "ERR " in front.
var replyClasses = []struct {
	prefix string
	class  string
}{
	{"LOADING", classLoading},
	{"READONLY", classReadOnly},
	{"MISCONF", classMisconf},
	{"OOM", classFull},
	{"CLUSTERDOWN", classClusterDown},
	{"TRYAGAIN", classTryAgain},
	{"NOREPLICAS", classNoReplicas},
	{"MASTERDOWN", classMasterDown},
	{"MOVED", classMoved},
	{"ASK", classMoved},
	{"BUSY", classBusy},
	{"max number of clients", classBusy},
	{"NOAUTH", classDenied},
	{"WRONGPASS", classDenied},
	{"NOPERM", classDenied},
	{deniedInScript, classDenied},
	{"WRONGTYPE", classUnreadable},
}

// deniedInScript begins the error of a script whose user lacks the right to a command inside it.
const deniedInScript = "The user executing the script"

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
func Classify(err error) string {
	if err == nil {
		return classNone
	}
	switch {
	case errors.Is(err, dedup.ErrUnreadable):
		return classUnreadable
	case errors.Is(err, ErrAmnesia):
		return classAmnesia
	case errors.Is(err, ErrBreakerOpen):
		return classBreaker
	}
	for _, c := range replyClasses {
		if redis.HasErrorPrefix(err, c.prefix) {
			return c.class
		}
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return classOther
	}
	return classifyTransport(err)
}

// classifyTransport looks at an error that is not a reply. A context's own error comes before the
// timeout that it also is, and a refused dial before both: it names the cause.
func classifyTransport(err error) string {
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return classNetwork
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return classContext
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return classTimeout
	case op != nil, errors.Is(err, redis.ErrClosed), errors.Is(err, net.ErrClosed),
		brokenConnection(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe):
		return classNetwork
	}
	return classOther
}

// brokenConnection recognizes a system call that found the connection gone. go-redis hands it
// on as an os.SyscallError that is in no net.OpError: so it is when a server at maxclients
// accepts a connection and closes it.
func brokenConnection(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ECONNABORTED)
}

// deniedError tells package dedup that the call would be refused again.
type deniedError struct{ err error }

func (e *deniedError) Error() string { return "permission denied: " + e.err.Error() }
func (e *deniedError) Unwrap() error { return e.err }
func (e *deniedError) Denied() bool  { return true }

// lacksPermission reports whether the user lacks a right. NOAUTH and WRONGPASS are also
// classDenied, but a rotated password may be known to the client's next connection.
func lacksPermission(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, deniedInScript)
}

// wrap gives an error its place, and the identity that package dedup looks for.
func wrap(op string, err error) error {
	if errors.Is(err, redisscript.ErrUnreadable) ||
		Classify(err) == classUnreadable && !errors.Is(err, dedup.ErrUnreadable) {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, dedup.ErrUnreadable, err)
	}
	if Classify(err) == classFull {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, dedup.ErrStoreFull, err)
	}
	if lacksPermission(err) {
		return fmt.Errorf("redisadapter: %s: %w", op, &deniedError{err})
	}
	return fmt.Errorf("redisadapter: %s: %w", op, err)
}
