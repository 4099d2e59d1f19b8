package grpcadapter

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/encrypted"
)

// Requirement says whether the calls of a method need a key.
type Requirement int

const (
	// Required answers a call without a key with InvalidArgument.
	Required Requirement = iota
	// Optional lets a call without a key pass untouched.
	Optional
	// Unkeyed lets every call pass untouched, also one with a key. It is for methods that only
	// read.
	Unkeyed
)

// Types finds the message type of a stored response by the URL of the type, as
// [protoregistry.GlobalTypes] does.
type Types interface {
	// FindMessageByURL returns the type whose full name ends the URL, or an error.
	FindMessageByURL(url string) (protoreflect.MessageType, error)
}

// Config configures a [UnaryServerInterceptor]. The zero Config works.
type Config struct {
	// Name separates interceptors that share a namespace but must not share keys. Default "".
	Name string
	// Methods returns whether the calls of a method need a key. Default: Unkeyed for those of
	// grpc.health, grpc.reflection and grpc.channelz, Required for all others.
	Methods func(fullMethod string) Requirement
	// CheckKey refuses a key that does not have the format that the service has published; its
	// error is sent to the client, with InvalidArgument. Default: 1-255 bytes are a key.
	CheckKey func(key string) error

	// Fingerprint returns what must be the same when a key arrives again; a call with another
	// fingerprint is answered with FailedPrecondition (KEY_REUSED). If a client's retry may differ
	// in some fields, such as the time of sending, return only the fields that matter. A nil
	// fingerprint is not compared: see [NoFingerprint]. Fingerprint must not change or keep req,
	// and is called concurrently. If you change the function, honest retries get KEY_REUSED while
	// the deployment rolls, unless FingerprintKey gets another Version. Default:
	// [RequestFingerprint], all fields.
	Fingerprint func(fullMethod string, req proto.Message) []byte
	// FingerprintKey is the secret of the fingerprints. Default nil: they have none.
	FingerprintKey *httpadapter.FingerprintKey

	// MaxInFlight bounds how many calls with a key one principal may have in flight here at a time.
	// The next call is answered with ResourceExhausted, and claims nothing. Each interceptor of
	// each process counts by itself; replays count, too. With [Unscoped] it bounds all clients
	// together. Default 0: no bound.
	MaxInFlight int
	// RetryBudget bounds the retries of each principal to a part of its calls: a retry above it is
	// answered with ResourceExhausted and claims nothing. New calls always continue. gRPC's own
	// retries are recognized by their metadata grpc-previous-rpc-attempts. If an
	// [httpadapter.Middleware] has the same budget, it counts both together. With [Unscoped] it
	// bounds all clients together. Default nil: no bound.
	RetryBudget *httpadapter.RetryBudget
	// ResponseLimit bounds a response as it is stored, in bytes. If a response is larger, the call
	// has had its effect: it is answered with DataLoss, and so are its retries. Of a larger error,
	// the code and 128 bytes of the message are stored. At least 256, and at most what the Runner
	// keeps. Default 128 KiB, or what the Runner keeps if that is less.
	ResponseLimit int
	// Seal encrypts the stored responses and errors; each is bound to the key under which it is
	// stored. Its keys have 32 bytes: the first one encrypts, and all of them decrypt. To change
	// it, add the new key at the end in all processes, then put it first, and drop the old one a
	// window later. It covers only responses and kept errors: what [dedup.Step] keeps and the texts
	// of failures ([dedup.FailedError]) stay in clear. Sealed data is not bound to the Runner's
	// namespace: namespaces that must not read each other's data need different keys. Default: in
	// clear.
	Seal [][]byte
	// AcceptPlain reads records in clear as well, for one window after Seal was set. Default false:
	// with Seal such records are refused.
	AcceptPlain bool
	// Types finds the types of stored responses. Default [protoregistry.GlobalTypes].
	Types Types

	// Keep reports whether an error with this code is final: it is stored and replayed. An error
	// that is not kept is sent, and its key is free for the next attempt. A response is always
	// kept; an error whose code is not one of gRPC never is. Default [KeepFinal].
	Keep func(codes.Code) bool
	// BeforeReplay checks again whether the client may see the response. An error is answered with
	// PermissionDenied. If it wraps [dedup.ErrUnknown], because that cannot be found out now, the
	// answer is Unavailable. Default: no check besides the Scope.
	BeforeReplay func(ctx context.Context, fullMethod string) error

	// CancelWithClient cancels the handler when its client has gone, or the client's deadline has
	// passed. The handler's context then has that deadline, too. Default false: the handler
	// continues, and its response waits for the retry.
	CancelWithClient bool
	// Timeout cancels the handler's context; it never answers for the handler. Default 1 minute.
	Timeout time.Duration
	// RetryAfter is the wait that is named by errors that ask for a retry. Default 1 s.
	RetryAfter time.Duration
	// Logger gets what a client is not told. Default: discarded.
	Logger *slog.Logger
}

const (
	defaultResponseLimit = 128 << 10
	minResponseLimit     = 256
	defaultTimeout       = time.Minute
	defaultRetryAfter    = time.Second
	uncertainRetryAfter  = 30 * time.Second
)

// KeepFinal keeps the codes that a retry would only get again: InvalidArgument, FailedPrecondition,
// AlreadyExists and OutOfRange. The cause of PermissionDenied and NotFound may pass, so they are
// not kept.
func KeepFinal(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange:
		return true
	default:
		return false
	}
}

func defaultMethods(fullMethod string) Requirement {
	for _, service := range []string{"/grpc.health.", "/grpc.reflection.", "/grpc.channelz."} {
		if strings.HasPrefix(fullMethod, service) {
			return Unkeyed
		}
	}
	return Required
}

func (c *Config) setDefaults(run httpadapter.Runner) {
	if c.Methods == nil {
		c.Methods = defaultMethods
	}
	if c.ResponseLimit == 0 {
		c.ResponseLimit = min(defaultResponseLimit, run.ResultLimit())
	}
	if c.Types == nil {
		c.Types = protoregistry.GlobalTypes
	}
	if c.Keep == nil {
		c.Keep = KeepFinal
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = defaultRetryAfter
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: "grpcadapter.Config." + field,
		Reason: fmt.Sprintf(format, args...)}
}

// check names the first bad field of a configuration with its defaults.
func (c *Config) check(run httpadapter.Runner) error {
	switch {
	case c.MaxInFlight < 0:
		return bad("MaxInFlight", "is %d; it must not be negative", c.MaxInFlight)
	case c.ResponseLimit < minResponseLimit:
		return bad("ResponseLimit", "is %d bytes; at least %d are needed", c.ResponseLimit,
			minResponseLimit)
	case c.ResponseLimit > run.ResultLimit():
		return bad("ResponseLimit", "is %d bytes, more than the Runner keeps (%d)", c.ResponseLimit,
			run.ResultLimit())
	case c.Timeout < 0:
		return bad("Timeout", "is %v; it must not be negative", c.Timeout)
	case c.RetryAfter < 0:
		return bad("RetryAfter", "is %v; it must not be negative", c.RetryAfter)
	case c.AcceptPlain && len(c.Seal) == 0:
		return bad("AcceptPlain", "is set, and there is no Seal")
	}
	return nil
}

// build makes the parts whose constructors return errors.
func (i *interceptor) build() (err error) {
	if i.cfg.Fingerprint == nil {
		i.cfg.Fingerprint = RequestFingerprint
	}
	key := httpadapter.FingerprintKey{}
	if i.cfg.FingerprintKey != nil {
		if key = *i.cfg.FingerprintKey; key.Version == 0 {
			return bad("FingerprintKey", "has version 0; it must be 1-127")
		}
	}
	if i.digester, err = encrypted.NewDigester("grpcadapter.Config.FingerprintKey", key.Version,
		key.Key); err != nil {
		return err
	}
	i.box, err = encrypted.NewBox("grpcadapter.Config.Seal", i.cfg.Seal, i.cfg.AcceptPlain)
	return err
}
