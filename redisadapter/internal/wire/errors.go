package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
)

// The values of [Classify], whose comment says what they mean. Metrics and alarms read them, so a
// value does not change.
const (
	classNone        = ""
	ClassContext     = "context"
	ClassTimeout     = "timeout"
	ClassNetwork     = "network"
	classLoading     = "loading"
	ClassReadOnly    = "read_only"
	classMisconf     = "misconf"
	ClassFull        = "full"
	classClusterDown = "cluster_down"
	classTryAgain    = "try_again"
	classNoReplicas  = "no_replicas"
	classMasterDown  = "master_down"
	ClassMoved       = "moved"
	classBusy        = "busy"
	ClassDenied      = "denied"
	ClassUnreadable  = "unreadable"
	classAmnesia     = "amnesia"
	classBreaker     = "breaker"
	ClassOther       = "other"
)

// replyClasses maps the first word of an error reply to its class. It is a list, because go-redis
// also strips an "ERR " in front.
var replyClasses = []struct {
	prefix string
	class  string
}{
	{"LOADING", classLoading},
	{"READONLY", ClassReadOnly},
	{"MISCONF", classMisconf},
	{"OOM", ClassFull},
	{"CLUSTERDOWN", classClusterDown},
	{"TRYAGAIN", classTryAgain},
	{"NOREPLICAS", classNoReplicas},
	{"MASTERDOWN", classMasterDown},
	{"MOVED", ClassMoved},
	{"ASK", ClassMoved},
	{"BUSY", classBusy},
	{"max number of clients", classBusy},
	{"NOAUTH", ClassDenied},
	{"WRONGPASS", ClassDenied},
	{"NOPERM", ClassDenied},
	{deniedInScript, ClassDenied},
	{deniedInValkeyScript, ClassDenied},
	{"WRONGTYPE", ClassUnreadable},
}

// The error of a script begins with one of these when the user lacks the right to a command inside
// it: the first in Redis, the second in Valkey 9.
const (
	deniedInScript       = "The user executing the script"
	deniedInValkeyScript = "ACL failure in script"
)

// Classify does the work of redisadapter.Classify.
func Classify(err error) string {
	if err == nil {
		return classNone
	}
	switch {
	case errors.Is(err, driver.ErrUnreadable):
		return ClassUnreadable
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
		return ClassOther
	}
	return classifyTransport(err)
}

// classifyTransport looks at an error that is not a reply. It checks for a refused dial first,
// because that names the cause. It checks for a context's own error before a timeout, because that
// error is also a timeout.
func classifyTransport(err error) string {
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
		BrokenConnection(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe):
		return ClassNetwork
	}
	return ClassOther
}

// BrokenConnection recognizes a system call that found the connection gone. go-redis returns that
// as an os.SyscallError without a net.OpError, for example when a server at maxclients accepts a
// connection and closes it.
func BrokenConnection(err error) bool {
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
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, deniedInScript) ||
		redis.HasErrorPrefix(err, deniedInValkeyScript)
}

// Wrap adds the operation to an error, and the identity that package dedup looks for.
func Wrap(op string, err error) error {
	if errors.Is(err, redisscript.ErrUnreadable) ||
		Classify(err) == ClassUnreadable && !errors.Is(err, driver.ErrUnreadable) {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, driver.ErrUnreadable, err)
	}
	if Classify(err) == ClassFull {
		return fmt.Errorf("redisadapter: %s: %w: %w", op, driver.ErrStoreFull, err)
	}
	if lacksPermission(err) {
		return fmt.Errorf("redisadapter: %s: %w", op, &deniedError{err})
	}
	return fmt.Errorf("redisadapter: %s: %w", op, err)
}

// The errors of redisadapter's variables.
var (
	ErrAmnesia           = errors.New("redisadapter: the server has lost data")
	ErrBreakerOpen error = NotSentError("redisadapter: circuit breaker is open")
)

// NotSentError says why the server was not asked.
type NotSentError string

// Error implements error.
func (e NotSentError) Error() string { return string(e) }

// NotSent tells the core that there is nothing to give back: see driver.Answer.
func (NotSentError) NotSent() bool { return true }
