package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/internal/servertest"
)

// process is a server process and its client.
type process struct {
	*mcp.ClientSession
	cmd *exec.Cmd
}

func start(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	// It ends when its standard input does, also where this process is killed.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(
		context.WithoutCancel(t.Context()), &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &process{client, cmd}
}

// kill is a SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGKILL))
	_ = p.Close()
}

// charge returns the text of the result, or the reason of an error.
func charge(ctx context.Context, client *mcp.ClientSession, key string, in order) (string, error) {
	res, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "charge", Arguments: in,
		Meta: mcp.Meta{mcpadapter.DefaultMetaKey: key}})
	return answer(res, err), err
}

func answer(res *mcp.CallToolResult, err error) string {
	var wire *jsonrpc.Error
	var data mcpadapter.ErrorData
	switch {
	case errors.As(err, &wire) && json.Unmarshal(wire.Data, &data) == nil:
		return data.Reason
	case err != nil:
		return err.Error()
	}
	text, err := json.Marshal(res)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// crowd sends the call twenty times at a time, and returns the one answer that all get.
func crowd(t *testing.T, client *mcp.ClientSession, key string, in order) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answers := make([]string, 20)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i], _ = charge(ctx, client, key, in) })
	}
	all.Wait()
	for _, a := range answers {
		assert.Equal(t, answers[0], a)
	}
	return answers[0]
}

// A server process is killed in the middle of a call, and another one is started, as a supervisor
// does. Twenty retries come at a time. All get one answer; the effect happens once if the bank is
// asked, and at most once if nobody can be asked.
func TestServerIsKilled(t *testing.T) {
	addr := servertest.Redis(t)
	for name, row := range map[string]struct {
		stop                string
		resolve, idempotent bool
		effects             int
		then                string
	}{
		"before the effect, asked":       {beforeEffect, true, false, 1, "receipt of o-1, run 2"},
		"after the effect, asked":        {afterEffect, true, false, 1, "receipt of o-1, run 1"},
		"after the effect, not asked":    {afterEffect, false, false, 1, "UNCERTAIN"},
		"before the effect, not asked":   {beforeEffect, false, false, 0, "UNCERTAIN"},
		"after the effect, idempotent":   {afterEffect, false, true, 2, "receipt of o-1, run 2"},
		"before the effect, idempotent":  {beforeEffect, false, true, 1, "receipt of o-1, run 2"},
		"nobody is killed, and is asked": {"", true, false, 1, "receipt of o-1, run 1"},
	} {
		t.Run(name, func(t *testing.T) {
			j := job{Redis: addr, Prefix: servertest.Prefix(t), Resolve: row.resolve,
				Idempotent: row.idempotent}
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = client.Close() })
			b := &bank{client: client, prefix: j.Prefix}
			in := order{Order: "o-1", Stop: row.stop}
			first := start(t, j)
			if row.stop != "" {
				gone := make(chan error, 1)
				go func() {
					ctx := context.WithoutCancel(t.Context())
					_, err := charge(ctx, first.ClientSession, "k", in)
					gone <- err
				}()
				require.Eventually(t, func() bool {
					here, _ := client.Get(t.Context(), b.key("stopped", "o-1")).Result()
					return here == row.stop
				}, 30*time.Second, 5*time.Millisecond)
				first.kill(t)
				require.Error(t, <-gone, "the answer is lost")
				first = start(t, j)
			}
			got := crowd(t, first.ClientSession, "k", in)
			assert.Contains(t, got, row.then)
			assert.Equal(t, got, crowd(t, start(t, j).ClientSession, "k", in), "another process")
			other, err := charge(t.Context(), first.ClientSession, "k", order{Order: "o-2"})
			require.Error(t, err)
			assert.Equal(t, "KEY_REUSED", other)
			receipts, err := client.LRange(t.Context(), b.key("receipts", "o-1"), 0, -1).Result()
			require.NoError(t, err)
			assert.Len(t, receipts, row.effects, strings.Join(receipts, "; "))
		})
	}
}
