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

// EnvUser, when set, runs the tests with the rights of redisadapter/users.acl. Commands that
// shipped code sends through a client of this package use connections of that user. Commands that a
// test itself sends (to look at keys, to configure the server) use others. The variable may add
// rules that the documentation asks for: "+wait +scan +getrange". "1" adds none.
//
// The user may use every prefix, because each test has its own. miniredis has no users.
const EnvUser = "ONCEWARD_REDIS_USER"

// userRules returns the user as arguments of ACL SETUSER, or nil when the variable is not set.
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

// userFile is the text of users.acl. It is found from the working directory, which in a test is the
// directory of its package: -trimpath may remove the source path from the binary.
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

// asUser makes each connection of opts become the user. A connection that is opened after a restart
// of the server creates the user again.
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

// newClient is redis.NewClient. If there are rules, shipped code gets the rights of the user.
func newClient(opts *redis.Options, rules []any) *redis.Client {
	if rules == nil || opts.Username != "" {
		return redis.NewClient(opts)
	}
	client, free := redis.NewClient(asUser(opts, rules)), redis.NewClient(opts)
	client.AddHook(&sorter{free: free})
	return client
}

// sender is the context key for the sender of a command, in the goroutines of go-redis.
type sender struct{}

// sorter is a hook of a client: it lets shipped code send over that client, and sends the commands
// of tests over free. Nothing closes free, because a test program ends soon.
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
			_ = pipe.Process(ctx, cmd) // only queued; Exec sends it
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// marker puts the sender of a command to a Cluster into its context. The clients of the nodes
// cannot see the sender, because the Cluster's client calls them from goroutines of its own.
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

// shipped reports whether shipped code sends a command: the innermost caller of this repository
// decides. Commands that go-redis sends of its own accord count as shipped. So do commands that an
// effect of a test sends inside of a transaction of ours, because they need its connection.
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
