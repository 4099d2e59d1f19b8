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

// Class says what kind of trouble an error from Redis is, for metrics and alarms. In
// every class but [ClassUnreadable] asking again with the same token may succeed, at the
// latest once somebody has mended the server.
type Class string

const (
	// ClassNone is the class of nil.
	ClassNone Class = ""
	// ClassContext: the caller's context ended first.
	ClassContext Class = "context"
	// ClassTimeout: the server, or a free connection of the pool, took too long.
	ClassTimeout Class = "timeout"
	// ClassNetwork: the connection was refused, reset, or ended in mid-reply. A server at
	// maxclients closes new connections, and its reason is often lost with them.
	ClassNetwork Class = "network"
	// ClassLoading: the server is reading its data set after a start.
	ClassLoading Class = "loading"
	// ClassReadOnly: the server is a replica; a failover is under way, or the client
	// is connected to the wrong server.
	ClassReadOnly Class = "read_only"
	// ClassMisconf: the server cannot save to disk and refuses writes for that.
	ClassMisconf Class = "misconf"
	// ClassFull: the server is at maxmemory and refuses new claims; the error is a
	// dedup.ErrStoreFull.
	ClassFull Class = "full"
	// ClassClusterDown: no majority, or a slot that nobody serves.
	ClassClusterDown Class = "cluster_down"
	// ClassTryAgain: a slot is being moved.
	ClassTryAgain Class = "try_again"
	// ClassNoReplicas: fewer replicas are in sync than min-replicas-to-write asks for.
	ClassNoReplicas Class = "no_replicas"
	// ClassMasterDown: a replica has lost its primary and serves nothing.
	ClassMasterDown Class = "master_down"
	// ClassMoved: a slot is elsewhere (MOVED, ASK), and the client could not follow; for
	// one, it is a client for a single server and the server is part of a Cluster.
	ClassMoved Class = "moved"
	// ClassBusy: the server is running a script, or has too many clients.
	ClassBusy Class = "busy"
	// ClassDenied: the user may not do this (NOAUTH, WRONGPASS, NOPERM). With NOPERM the end of
	// a claim is not sent again.
	ClassDenied Class = "denied"
	// ClassUnreadable: the key holds no record of a version this package knows; the
	// error is a dedup.ErrUnreadable.
	ClassUnreadable Class = "unreadable"
	// ClassAmnesia: the server has lost data, and Options.Amnesia is FailClosed or could
	// not ask elsewhere; the error is an ErrAmnesia.
	ClassAmnesia Class = "amnesia"
	// ClassBreaker: nothing was sent, because the last calls have not reached the server;
	// the error is an ErrBreakerOpen.
	ClassBreaker Class = "breaker"
	// ClassOther is anything else.
	ClassOther Class = "other"
)

// replyClasses maps the first word of an error reply. A list, because go-redis also
// strips an "ERR " in front.
var replyClasses = []struct {
	prefix string
	class  Class
}{
	{"LOADING", ClassLoading},
	{"READONLY", ClassReadOnly},
	{"MISCONF", ClassMisconf},
	{"OOM", ClassFull},
	{"CLUSTERDOWN", ClassClusterDown},
	{"TRYAGAIN", ClassTryAgain},
	{"NOREPLICAS", ClassNoReplicas},
	{"MASTERDOWN", ClassMasterDown},
	{"MOVED", ClassMoved},
	{"ASK", ClassMoved},
	{"BUSY", ClassBusy},
	{"max number of clients", ClassBusy},
	{"NOAUTH", ClassDenied},
	{"WRONGPASS", ClassDenied},
	{"NOPERM", ClassDenied},
	{deniedInScript, ClassDenied},
	{"WRONGTYPE", ClassUnreadable},
}

// deniedInScript begins the error of a script whose user lacks the right to a command inside it.
const deniedInScript = "The user executing the script"

// Classify returns the class of an error that a [Store] or go-redis returned, also when
// it is wrapped. It is cheap, and safe for concurrent use.
func Classify(err error) Class {
	if err == nil {
		return ClassNone
	}
	switch {
	case errors.Is(err, dedup.ErrUnreadable):
		return ClassUnreadable
	case errors.Is(err, ErrAmnesia):
		return ClassAmnesia
	case errors.Is(err, ErrBreakerOpen):
		return ClassBreaker
	}
	for _, c := range replyClasses {
		if redis.HasErrorPrefix(err, c.prefix) {
			return c.class
		}
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return ClassOther
	}
	return classifyTransport(err)
}

// classifyTransport looks at what is no reply. A context's own error comes before the
// timeout that it also is, and a refused dial before both: it names the cause.
func classifyTransport(err error) Class {
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return ClassNetwork
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ClassContext
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return ClassTimeout
	case op != nil, errors.Is(err, redis.ErrClosed), errors.Is(err, net.ErrClosed),
		brokenConnection(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe):
		return ClassNetwork
	}
	return ClassOther
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
// ClassDenied, but a rotated password may be known to the client's next connection.
func lacksPermission(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, deniedInScript)
}

// wrap gives an error its place, and the identity that package dedup looks for.
func wrap(op string, err error) error {
	if errors.Is(err, redisscript.ErrUnreadable) ||
		Classify(err) == ClassUnreadable && !errors.Is(err, dedup.ErrUnreadable) {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, dedup.ErrUnreadable, err)
	}
	if Classify(err) == ClassFull {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, dedup.ErrStoreFull, err)
	}
	if lacksPermission(err) {
		return fmt.Errorf("redisadapter: %s: %w", op, &deniedError{err})
	}
	return fmt.Errorf("redisadapter: %s: %w", op, err)
}
