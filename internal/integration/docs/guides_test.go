package docs_test

import (
	"bytes"
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/internal/servertest"
)

// TestFrameworksGuide: behind every router, a payment and its retry cause one payment and get one
// answer.
func TestFrameworksGuide(t *testing.T) {
	redis := servertest.Private(t, servertest.KindRedis).Addr
	for name, with := range map[string]string{"net/http": "http.NewServeMux()",
		"chi": "chi.NewRouter()", "gin": "gin.New()", "echo": "echo.New()",
		"fiber": "fiber.New()"} {
		t.Run(name, func(t *testing.T) {
			file := programOf(t, "docs/guides/frameworks.md", "router.go", with,
				strings.NewReplacer())
			listen := address(t)
			p := start(t, file, "LISTEN="+listen, "REDIS_ADDR="+redis, "GIN_MODE=release")
			header := http.Header{"X-Account": {name}, "Idempotency-Key": {`"k1"`},
				"Content-Type": {"application/x-www-form-urlencoded"}}
			for _, replayed := range []string{"", "true"} {
				got := post(t, "http://"+listen+"/payments", "amount=100", header)
				assert.Equal(t, http.StatusCreated, got.status, got.body)
				assert.Equal(t, "receipt for 100", got.body)
				assert.Equal(t, replayed, got.header.Get("Idempotent-Replayed"))
			}
			each(t, p.stop(), "paid 100")
		})
	}
}

// agent runs a server of MCP as an agent's host does.
type agent struct {
	*testing.T
	session *mcp.ClientSession
	stderr  bytes.Buffer
}

func newAgent(t *testing.T, file, redis string) *agent {
	t.Helper()
	server := exec.CommandContext(context.WithoutCancel(t.Context()), file)
	server.Env = append(server.Environ(), "REDIS_ADDR="+redis)
	a := &agent{T: t}
	server.Stderr = &a.stderr
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	a.session, err = mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).
		Connect(ctx, &mcp.CommandTransport{Command: server}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.session.Close() }) // an error if it is closed already
	return a
}

// call calls a tool, with a key unless it is empty, and returns the text of the answer.
func (a *agent) call(tool, key string, amount int, comment string) (string, error) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	p := &mcp.CallToolParams{Name: tool,
		Arguments: map[string]any{"order_id": "o-1", "amount": amount, "comment": comment}}
	if key != "" {
		p.Meta = mcp.Meta{mcpadapter.DefaultMetaKey: key}
	}
	res, err := a.session.CallTool(ctx, p)
	if err != nil {
		return "", err
	}
	require.Len(a, res.Content, 1)
	return res.Content[0].(*mcp.TextContent).Text, nil
}

// close ends the server, and returns what it has printed.
func (a *agent) close() string {
	a.Helper()
	require.NoError(a, a.session.Close())
	return a.stderr.String()
}

// TestAgentsGuide: an order is refunded once, also when another process is asked again. A different
// call for the same order is refused.
func TestAgentsGuide(t *testing.T) {
	file := programs(t, "docs/guides/agents.md", 1)[0]
	redis := servertest.Private(t, servertest.KindRedis).Addr
	a := newAgent(t, file, redis)
	for _, comment := range []string{"first", "again"} {
		text, err := a.call("refund", "", 5, comment)
		require.NoError(t, err)
		assert.Equal(t, "receipt of o-1", text)
	}
	assert.Equal(t, "refunded o-1: 5\n", a.close())

	a = newAgent(t, file, redis)
	text, err := a.call("refund", "", 5, "")
	require.NoError(t, err)
	assert.Equal(t, "receipt of o-1", text)
	_, err = a.call("refund", "", 7, "")
	require.ErrorContains(t, err, "another operation needs another key")
	_, err = a.call("charge", "", 5, "")
	require.ErrorContains(t, err, "needs an idempotency key")
	for range 2 {
		_, err = a.call("charge", "charge-1", 5, "")
		require.NoError(t, err)
	}
	assert.Equal(t, "charged o-1: 5\n", a.close())
}
