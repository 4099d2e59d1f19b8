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

// Requirement says what a method has to do with keys.
type Requirement int

const (
	// Required answers a call without a key with InvalidArgument.
	Required Requirement = iota
	// Optional lets a call without a key pass untouched.
	Optional
	// Unkeyed lets every call pass untouched, also one with a key: for what only reads.
	Unkeyed
)

// Types finds the type of a stored response by its URL; [protoregistry.GlobalTypes] does.
type Types interface {
	// FindMessageByURL returns the type whose full name ends the URL, or an error.
	FindMessageByURL(url string) (protoreflect.MessageType, error)
}

// Config configures a [UnaryServerInterceptor]. The zero Config works.
type Config struct {
	// Name separates interceptors that share a namespace and must not share keys. Default "".
	Name string
	// Methods says which methods have keys. Default: Unkeyed for those of grpc.health,
	// grpc.reflection and grpc.channelz, Required for all others.
	Methods func(fullMethod string) Requirement
	// CheckKey refuses what is not of the format that a service has published for its keys;
	// its error is sent to the client, with InvalidArgument. Default: 1-255 bytes are a key.
	CheckKey func(key string) error

	// Fingerprint returns what must be the same when a key arrives again; a call with another
	// one is answered with FailedPrecondition (KEY_REUSED). Name the fields that matter where a
	// retry of a client may differ in others, such as the time of sending. nil is compared with
	// nothing: see [NoFingerprint]. It must not change or keep req, and is called concurrently.
	// Another function makes KEY_REUSED of honest retries while a deployment rolls, unless
	// FingerprintKey gets another Version with it. Default: [RequestFingerprint], all fields.
	Fingerprint func(fullMethod string, req proto.Message) []byte
	// FingerprintKey makes fingerprints with a secret. Default nil: without one.
	FingerprintKey *httpadapter.FingerprintKey

	// MaxInFlight bounds how many calls with a key one principal may have under way here at a
	// time: the next one is answered with ResourceExhausted, and claims nothing. Each interceptor
	// of each process counts by itself; replays count, too. With [Unscoped] it bounds all clients
	// together. Default 0: no bound.
	MaxInFlight int
	// RetryBudget bounds the retries of each principal to a part of its calls: a retry above it is
	// answered with ResourceExhausted and claims nothing. New calls always continue. A call that
	// gRPC's own retries send says so, in its metadata grpc-previous-rpc-attempts. A budget that
	// an httpadapter.Middleware has, too, counts both together. With [Unscoped] it bounds all
	// clients together. Default nil: no bound.
	RetryBudget *httpadapter.RetryBudget
	// ResponseLimit bounds a response as it is stored, in bytes. The call whose response is
	// larger has had its effect, and is answered with DataLoss, as its retries are. Of an error
	// that is larger, the code and 128 bytes of the message are stored. At least
	// 256, and at most what the Runner keeps. Default 128 KiB, or what the Runner keeps where
	// that is less.
	ResponseLimit int
	// Seal encrypts what is stored, bound to the key it is stored under: the first key,
	// of 32 bytes, writes, all of them read. To change it, add the new one at the end
	// everywhere, then put it first, and drop the old one a window later. It covers responses
	// and kept errors alone: what [dedup.Step] keeps and the texts of failures
	// ([dedup.FailedError]) stay in clear. Sealed data is not bound to the Runner's namespace:
	// namespaces that must not read each other's data need different keys. Default: in clear.
	Seal [][]byte
	// AcceptPlain reads records in clear as well, for one window after Seal was set. Default
	// false: where there is Seal, they are refused.
	AcceptPlain bool
	// Types finds the types of stored responses. Default [protoregistry.GlobalTypes].
	Types Types

	// Keep reports whether an error with a code is final, to be stored and replayed. One that
	// is not kept is sent, and its key is free for the next attempt. A response is always
	// kept; a code that is not of gRPC never is. Default [KeepFinal].
	Keep func(codes.Code) bool
	// BeforeReplay asks once more whether the client may see the response: its error is
	// answered with PermissionDenied, or where errors.Is finds [dedup.ErrUnknown] in it, because
	// that cannot be found out now, with Unavailable. Default: the Scope was enough.
	BeforeReplay func(ctx context.Context, fullMethod string) error

	// CancelWithClient cancels the handler when its client has gone, or the client's deadline has
	// passed. The handler's context then has that deadline, too. Default false: the handler
	// continues, and its response waits for the retry.
	CancelWithClient bool
	// Timeout cancels the handler's context; it never answers for it. Default 1 minute.
	Timeout time.Duration
	// RetryAfter is the wait that an error names which asks for a retry. Default 1 s.
	RetryAfter time.Duration
	// Logger is told what a client is not. Default: discarded.
	Logger *slog.Logger
}

const (
	defaultResponseLimit = 128 << 10
	minResponseLimit     = 256
	defaultTimeout       = time.Minute
	defaultRetryAfter    = time.Second
	uncertainRetryAfter  = 30 * time.Second
)

// KeepFinal keeps the codes that a retry would only get again: InvalidArgument,
// FailedPrecondition, AlreadyExists and OutOfRange. PermissionDenied and NotFound may end.
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

// build makes the parts that have errors of their own.
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
