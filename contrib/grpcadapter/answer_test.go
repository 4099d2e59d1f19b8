package grpcadapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/encrypted"
)

func TestFirstThenReplayed(t *testing.T) {
	s := newService(t, grpcadapter.Config{}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", "a"), "a-1", false)
	again := s.call(t.Context(), charge, "k", "a")
	wantValue(t, again, "a-1", true)
	assert.Equal(t, []string{"86400"}, again.trailer[grpcadapter.WindowMetadata])
	wantValue(t, s.call(t.Context(), charge, "other", "a"), "a-2", false)
	s.wantRuns(t, 2)
}

// A key belongs to its principal and its method.
func TestKeysDoNotCross(t *testing.T) {
	s := newService(t, grpcadapter.Config{}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", "acme"), "acme-1", false)
	wantValue(t, s.call(t.Context(), refund, "k", "back"), "back-2", false)
	wantValue(t, s.send(t.Context(), charge, "evil", "account", "evil", "idempotency-key", "k"),
		"evil-3", false)
	wantValue(t, s.call(t.Context(), charge, "k", "acme"), "acme-1", true)
}

func TestNamesSeparateInterceptors(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	one := newServiceOver(t, run, grpcadapter.Unscoped, grpcadapter.Config{}, counted())
	two := newServiceOver(t, run, grpcadapter.Unscoped, grpcadapter.Config{Name: "two"}, counted())
	wantValue(t, one.call(t.Context(), charge, "k", "one"), "one-1", false)
	wantValue(t, two.call(t.Context(), charge, "k", "two"), "two-1", false)
	wantValue(t, one.send(t.Context(), charge, "one", "idempotency-key", "k"), "one-1", true)
}

func TestKeys(t *testing.T) {
	s := newService(t, grpcadapter.Config{CheckKey: func(key string) error {
		if key == "refused" {
			return errors.New("keys are UUIDs")
		}
		return nil
	}}, counted())
	for name, md := range map[string][]string{
		"twice":       {"idempotency-key", "a", "idempotency-key", "b"},
		"empty":       {"idempotency-key", ""},
		"space":       {"idempotency-key", "a b"},
		"comma":       {"idempotency-key", "a,b"},
		"long":        {"idempotency-key", strings.Repeat("k", 256)},
		"not a UUID":  {"idempotency-key", "refused"},
		"twice equal": {"idempotency-key", "a", "idempotency-key", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			wantOwn(t, s.send(t.Context(), charge, "v", append(md, "account", "acme")...),
				codes.InvalidArgument, "KEY_MALFORMED", 0, "-1")
		})
	}
	wantOwn(t, s.call(t.Context(), charge, "", "v"), codes.InvalidArgument, "KEY_MISSING", 0, "-1")
	s.wantRuns(t, 0)
	for _, key := range []string{"k", strings.Repeat("~", 255), `!"{}\;`} {
		assert.NoError(t, s.call(t.Context(), charge, key, "v").err, key)
	}
}

func TestRequirements(t *testing.T) {
	s := newService(t, grpcadapter.Config{Methods: func(method string) grpcadapter.Requirement {
		if method == charge {
			return grpcadapter.Optional
		}
		return grpcadapter.Unkeyed
	}}, counted())
	wantValue(t, s.call(t.Context(), charge, "", "v"), "v-1", false)
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-2", false)
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-2", true)
	wantValue(t, s.call(t.Context(), refund, "k", "v"), "v-3", false)
	wantValue(t, s.call(t.Context(), refund, "k", "v"), "v-4", false)
}

func TestScopes(t *testing.T) {
	s := newService(t, grpcadapter.Config{}, counted())
	wantOwn(t, s.send(t.Context(), charge, "v", "idempotency-key", "k"), codes.Unauthenticated,
		"NO_PRINCIPAL", 0, "")
	s.wantRuns(t, 0)
	down := func(context.Context, string) (string, error) { return "acme", errors.New("down") }
	s = newServiceOver(t, newClaimed(t, newDeduper(t, nil)), down, grpcadapter.Config{}, counted())
	wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.Unavailable, "SCOPE_UNAVAILABLE",
		time.Second, "1000")
	s.wantRuns(t, 0)
}

// An empty fingerprint is compared like any other. A nil one is not compared.
func TestFingerprint(t *testing.T) {
	s := newService(t, grpcadapter.Config{Fingerprint: func(method string,
		req proto.Message) []byte {
		if method == charge {
			return []byte(req.(*wrapperspb.StringValue).GetValue())
		}
		return nil
	}}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", ""), "-1", false)
	wantOwn(t, s.call(t.Context(), charge, "k", "b"), codes.FailedPrecondition,
		"KEY_REUSED", 0, "-1")
	wantValue(t, s.call(t.Context(), charge, "k", ""), "-1", true)
	wantValue(t, s.call(t.Context(), refund, "k", "a"), "a-2", false)
	wantValue(t, s.call(t.Context(), refund, "k", "b"), "a-2", true)
}

// A Runner can answer in these ways without having run anything.
func TestRunnersAnswers(t *testing.T) {
	busy := dedup.Result[[]byte]{Record: dedup.Record{Remaining: 250 * time.Millisecond}}
	done := func(stored []byte) dedup.Result[[]byte] {
		return dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: stored}
	}
	tomb := encrypted.Encode(&encrypted.Response{Tombstone: true})
	form := func(r *encrypted.Response) []byte { return encrypted.Encode(r) }
	for name, c := range map[string]struct {
		res      dedup.Result[[]byte]
		err      error
		code     codes.Code
		reason   string
		delay    time.Duration
		pushback string
	}{
		"in flight": {err: dedup.ErrInFlight, code: codes.Aborted, reason: "IN_FLIGHT",
			delay: time.Second, pushback: "1000"},
		"in flight, not long": {res: busy, err: dedup.ErrInFlight, code: codes.Aborted,
			reason: "IN_FLIGHT", delay: 250 * time.Millisecond, pushback: "250"},
		"uncertain": {err: dedup.ErrUncertain, code: codes.Aborted, reason: "UNCERTAIN",
			delay: 30 * time.Second, pushback: "30000"},
		"mismatch": {err: dedup.ErrMismatch, code: codes.FailedPrecondition,
			reason: "KEY_REUSED", pushback: "-1"},
		"unknown": {err: dedup.ErrUnknown, code: codes.Unavailable,
			reason: "STORE_UNAVAILABLE", delay: time.Second, pushback: "1000"},
		"closed": {err: dedup.ErrClosed, code: codes.Unavailable,
			reason: "STORE_UNAVAILABLE", delay: time.Second, pushback: "1000"},
		"any other error": {err: errors.New("boom"), code: codes.Unavailable,
			reason: "STORE_UNAVAILABLE", delay: time.Second, pushback: "1000"},
		"nothing": {code: codes.Unavailable, reason: "STORE_UNAVAILABLE",
			delay: time.Second, pushback: "1000"},
		"acquired, and not run": {res: dedup.Result[[]byte]{Outcome: dedup.Acquired},
			code: codes.Unavailable, reason: "STORE_UNAVAILABLE", delay: time.Second,
			pushback: "1000"},
		"failed": {err: &dedup.FailedError{}, code: codes.Internal, reason: "FAILED",
			pushback: "-1"},
		"no result": {err: dedup.ErrNoResult, code: codes.DataLoss,
			reason: "RESPONSE_NOT_KEPT", pushback: "-1"},
		"marked": {res: done(nil), code: codes.DataLoss, reason: "RESPONSE_NOT_KEPT",
			pushback: "-1"},
		"tombstone": {res: done(tomb), code: codes.DataLoss,
			reason: "RESPONSE_NOT_KEPT", pushback: "-1"},
		"garbage": {res: done([]byte("hello")), code: codes.DataLoss,
			reason: "RESPONSE_UNREADABLE", pushback: "-1"},
		"sealed": {res: done([]byte{0x81, 1, 2, 3}), code: codes.DataLoss,
			reason: "RESPONSE_UNREADABLE", pushback: "-1"},
		"one of HTTP": {res: done(form(&encrypted.Response{Status: 201,
			Body: []byte("paid")})), code: codes.DataLoss, reason: "RESPONSE_UNREADABLE",
			pushback: "-1"},
		"without a type": {res: done(form(&encrypted.Response{})), code: codes.DataLoss,
			reason: "RESPONSE_UNREADABLE", pushback: "-1"},
		"of an unknown type": {
			res: done(form(&encrypted.Response{
				Header: map[string][]string{"type-url": {"type.googleapis.com/no.Such"}}})),
			code: codes.DataLoss, reason: "RESPONSE_UNREADABLE", pushback: "-1"},
		"broken off": {
			res: done(form(&encrypted.Response{Header: map[string][]string{
				"type-url": {"type.googleapis.com/google.protobuf.StringValue"}},
				Body: []byte{10, 5, 'a'}})), code: codes.DataLoss, reason: "RESPONSE_UNREADABLE",
			pushback: "-1"},
		"another code inside": {res: done(form(&encrypted.Response{Status: 9, Body: []byte{8, 3}})),
			code: codes.DataLoss, reason: "RESPONSE_UNREADABLE", pushback: "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOver(t, answering(c.res, c.err), byAccount, grpcadapter.Config{},
				counted())
			wantOwn(t, s.call(t.Context(), charge, "k", "v"), c.code, c.reason, c.delay, c.pushback)
			s.wantRuns(t, 0)
		})
	}
}

// The client never gets a response without a record, whatever became of the record.
func TestNoResponseWithoutItsRecord(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
	}{
		"lease lost":     {dedup.ErrLeaseLost, "OUTCOME_UNKNOWN"},
		"record unknown": {dedup.ErrUnknown, "OUTCOME_UNKNOWN"},
		"not recorded":   {errors.New("full"), "STORE_UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			run := &fake{limit: 1 << 20,
				do: func(ctx context.Context, effect httpadapter.Effect) (dedup.Result[[]byte],
					error) {
					result, _, err := effect(ctx)
					assert.NoError(t, err)
					assert.NotEmpty(t, result)
					return dedup.Result[[]byte]{Value: result, Outcome: dedup.Acquired}, c.err
				}}
			s := newServiceOver(t, run, byAccount, grpcadapter.Config{}, counted())
			wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.Unavailable, c.reason,
				time.Second, "1000")
			s.wantRuns(t, 1)
		})
	}
}

// An error with a kept code is replayed with message and details. Another error frees its key.
func TestErrors(t *testing.T) {
	for code := codes.Canceled; code <= 17; code++ {
		t.Run(code.String(), func(t *testing.T) {
			kept := code == codes.InvalidArgument || code == codes.FailedPrecondition ||
				code == codes.AlreadyExists || code == codes.OutOfRange
			s := newService(t, grpcadapter.Config{},
				func(context.Context, *wrapperspb.StringValue) (any, error) {
					st, err := status.New(code,
						"no").WithDetails(&errdetails.LocalizedMessage{Locale: "de",
						Message: "nein"})
					assert.NoError(t, err)
					return nil, dedup.Permanent(st.Err()) // which does not change the record
				})
			first, again := s.call(t.Context(), charge, "k", "v"),
				s.call(t.Context(), charge, "k", "v")
			for _, r := range []*reply{first, again} {
				details := status.Convert(r.err).Details()
				assert.Equal(t, code, status.Code(r.err))
				require.Len(t, details, 1)
				assert.Equal(t, "nein", details[0].(*errdetails.LocalizedMessage).GetMessage())
			}
			assert.False(t, first.replayed())
			assert.Equal(t, kept, again.replayed())
			assert.Equal(t, status.Convert(first.err).Message(),
				status.Convert(again.err).Message())
			s.wantRuns(t, map[bool]int64{true: 1, false: 2}[kept])
		})
	}
}

func TestKeepIsAsked(t *testing.T) {
	s := newService(t, grpcadapter.Config{Keep: func(c codes.Code) bool {
		return c == codes.NotFound
	}}, func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
		if req.GetValue() == "missing" {
			return nil, status.Error(codes.NotFound, "gone")
		}
		return nil, status.Error(codes.InvalidArgument, "bad")
	})
	s.call(t.Context(), charge, "1", "missing")
	r := s.call(t.Context(), charge, "1", "missing")
	assert.True(t, r.replayed())
	assert.Equal(t, codes.NotFound, status.Code(r.err))
	s.call(t.Context(), charge, "2", "bad")
	r = s.call(t.Context(), charge, "2", "bad")
	assert.False(t, r.replayed())
	assert.Equal(t, codes.InvalidArgument, status.Code(r.err))
}

// The effect of a call whose response cannot be replayed has still happened.
func TestResponsesThatCannotBeKept(t *testing.T) {
	for name, c := range map[string]struct {
		resp   any
		err    error
		reason string
	}{
		"too large":  {wrapperspb.String(strings.Repeat("x", 300)), nil, "RESPONSE_TOO_LARGE"},
		"nil":        {nil, nil, "RESPONSE_INVALID"},
		"no message": {"hello", nil, "RESPONSE_INVALID"},
		"no UTF-8":   {wrapperspb.String("\xff"), nil, "RESPONSE_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, grpcadapter.Config{ResponseLimit: 256},
				func(context.Context, *wrapperspb.StringValue) (any, error) {
					return c.resp, c.err
				})
			wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.DataLoss, c.reason, 0, "-1")
			wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.DataLoss,
				"RESPONSE_NOT_KEPT", 0, "-1")
			s.wantRuns(t, 1)
		})
	}
}

// A kept error says that nothing has happened, so its key must not be recorded as done.
func TestErrorsThatCannotBeKeptWhole(t *testing.T) {
	st := status.New(codes.InvalidArgument, strings.Repeat("é", 200))
	detailed, err := st.WithDetails(wrapperspb.String(strings.Repeat("x", 300)))
	require.NoError(t, err)
	sealing := grpcadapter.Config{ResponseLimit: 256, Seal: [][]byte{make([]byte, 32)}}
	for name, c := range map[string]struct {
		cfg         grpcadapter.Config
		err         error
		first, then string
		details     int
	}{
		"long": {grpcadapter.Config{ResponseLimit: 256}, st.Err(), st.Message(),
			strings.Repeat("é", 64), 0},
		"long, sealed": {sealing, st.Err(), st.Message(), strings.Repeat("é", 64), 0},
		"with details": {sealing, detailed.Err(), st.Message(), strings.Repeat("é", 64), 1},
		"cut in a letter": {sealing, status.Error(codes.OutOfRange, "x"+st.Message()),
			"x" + st.Message(), "x" + strings.Repeat("é", 63), 0},
		"no UTF-8": {sealing, status.Error(codes.AlreadyExists, "\xff is taken"),
			"\uFFFD is taken", "\uFFFD is taken", 0},
		"no UTF-8, length": {sealing, status.Error(codes.AlreadyExists,
			strings.Repeat("\xffa", 200)), strings.Repeat("\uFFFDa", 200),
			strings.Repeat("\uFFFDa", 32), 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, c.cfg, func(context.Context, *wrapperspb.StringValue) (any, error) {
				return nil, c.err
			})
			for i, want := range []string{c.first, c.then, c.then} {
				r := s.call(t.Context(), charge, "k", "v")
				got := status.Convert(r.err)
				details := c.details
				if i > 0 {
					details = 0
				}
				assert.Equal(t, status.Code(c.err), got.Code(), i)
				assert.Equal(t, want, got.Message(), i)
				assert.Len(t, got.Details(), details, i)
				assert.Equal(t, i > 0, r.replayed(), i)
			}
			s.wantRuns(t, 1)
		})
	}
}

// An error of BeforeReplay that is a dedup.ErrUnknown is not a refusal.
func TestReplayThatCannotBeDecided(t *testing.T) {
	s := newService(t, grpcadapter.Config{BeforeReplay: func(context.Context, string) error {
		return fmt.Errorf("%w: directory is down", dedup.ErrUnknown)
	}}, counted())
	s.call(t.Context(), charge, "k", "v")
	wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.Unavailable, "REPLAY_UNAVAILABLE",
		time.Second, "1000")
	s.wantRuns(t, 1)
}

func TestBeforeReplay(t *testing.T) {
	s := newService(t, grpcadapter.Config{BeforeReplay: func(_ context.Context,
		method string) error {
		if method == charge {
			return errors.New("not any more")
		}
		return nil
	}}, counted())
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.PermissionDenied,
		"REPLAY_REFUSED", 0, "-1")
	wantValue(t, s.call(t.Context(), refund, "k", "v"), "v-2", false)
	wantValue(t, s.call(t.Context(), refund, "k", "v"), "v-2", true)
}
