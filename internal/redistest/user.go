package redistest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// EnvUser, when set, runs the tests with the rights of redisadapter/users.acl: what shipped code
// sends through a client of this package goes over connections of that user, and what a test itself
// sends (to look at keys, to configure the server) over others. Rules in the variable are granted
// besides: "+wait +scan +getrange", for what the documentation says needs more. "1" grants nothing.
//
// The user may use every prefix, since each test has one of its own. miniredis knows no users.
const EnvUser = "ONCEWARD_REDIS_USER"

// userRules is the user as arguments of ACL SETUSER; nil when the variable is not set.
func userRules(t testing.TB) []any {
	t.Helper()
	more := strings.Fields(os.Getenv(EnvUser))
	if len(more) == 0 {
		return nil
	}
	text := userFile(t)
	rules := []any{"ACL", "SETUSER"}
	for _, word := range append(strings.Fields(string(text))[1:], more...) {
		switch word {
		case "1":
		case "~ow:*":
			rules = append(rules, "~*")
		default:
			rules = append(rules, word)
		}
	}
	return rules
}

// userFile is the text of users.acl. A test runs in the directory of its package, and what the
// binary knows of where it was built may be cut off (-trimpath).
func userFile(t testing.TB) []byte {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		text, missing := os.ReadFile(filepath.Join(dir, "redisadapter", "users.acl"))
		if missing == nil {
			return text
		}
		if dir == filepath.Dir(dir) {
			err = missing
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal(err)
	return nil
}

// asUser has each connection of opts become the user. A connection that was made after a restart
// makes the user anew.
func asUser(opts *redis.Options, rules []any) *redis.Options {
	restricted, before := *opts, opts.OnConnect
	restricted.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		err := conn.Do(ctx, rules...).Err()
		if unknown := redis.Error(nil); errors.As(err, &unknown) &&
			strings.Contains(err.Error(), "unknown command") {
			return nil // miniredis, or a fake
		}
		if err != nil {
			return err
		}
		name, _ := rules[2].(string)
		return conn.AuthACL(ctx, name, "change-me").Err()
	}
	return &restricted
}

// newClient is redis.NewClient, with the rights of the user for shipped code where there are rules.
func newClient(opts *redis.Options, rules []any) *redis.Client {
	if rules == nil || opts.Username != "" {
		return redis.NewClient(opts)
	}
	client, free := redis.NewClient(asUser(opts, rules)), redis.NewClient(opts)
	client.AddHook(&sorter{free: free})
	return client
}

// sender is the key of who sends a command, in the context of go-redis's own goroutines.
type sender struct{}

// sorter has shipped code send over the client it is a hook of, and tests over free. It is never
// closed: a program of tests ends soon.
type sorter struct{ free *redis.Client }

func (s *sorter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sorter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if shipped(ctx) {
			return next(ctx, cmd)
		}
		return s.free.Process(ctx, cmd)
	}
}

func (s *sorter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if shipped(ctx) {
			return next(ctx, cmds)
		}
		pipe := s.free.Pipeline()
		if n := len(cmds); n > 1 && cmds[0].Name() == "multi" {
			pipe, cmds = s.free.TxPipeline(), cmds[1:n-1]
		}
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // queued, and sent by Exec
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// marker tells the clients of a Cluster's nodes, which it asks from goroutines of its own, who
// has asked the Cluster.
type marker struct{}

func (marker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (marker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return next(context.WithValue(ctx, sender{}, shipped(ctx)), cmd)
	}
}

func (marker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return next(context.WithValue(ctx, sender{}, shipped(ctx)), cmds)
	}
}

// shipped reports whether a command is sent by shipped code: the innermost caller of this
// repository decides. What go-redis sends of its own accord counts as shipped, and so does what
// a test has an effect send inside of a transaction of ours: that is for its connection alone.
func shipped(ctx context.Context) bool {
	if by, ok := ctx.Value(sender{}).(bool); ok {
		return by
	}
	var pcs [96]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	ours, decided := true, false
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.File, "/redisadapter/transaction.go") {
			return true
		}
		if !decided && strings.HasPrefix(frame.Function, "github.com/onceward/onceward/") &&
			!strings.Contains(frame.Function, "/redistest.") {
			ours, decided = !strings.HasSuffix(frame.File, "_test.go"), true
		}
		if !more {
			return ours
		}
	}
}
