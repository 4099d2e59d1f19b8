// Package mcp_test runs contrib/mcpadapter in servers that are killed, and in front of a server
// that is not ours.
package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/redisadapter"
)

const childEnv = "ONCEWARD_MCP_CHILD"

// job is what a server process is to do.
type job struct {
	Redis, Prefix string
	Resolve       bool // it asks the bank about keys that are uncertain
	Idempotent    bool // the tool's annotation
}

// TestMain runs a server over stdin and stdout if the environment says so.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "server process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve serves until the client disconnects.
func serve(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: j.Redis, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: j.Prefix})
	if err != nil {
		return err
	}
	b := &bank{client: client, prefix: j.Prefix}
	cfg := dedup.Config{Namespace: "mcp", Window: time.Hour, LeaseTTL: time.Second,
		Wait: 20 * time.Second}
	if j.Resolve {
		cfg.Resolve = b.resolve
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close(ctx) }()
	run, err := httpadapter.Claimed(d)
	if err != nil {
		return err
	}
	once, err := mcpadapter.New(run, mcpadapter.Unscoped, mcpadapter.Config{Name: "bank"})
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "bank"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "charge",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: j.Idempotent}}, b.charge)
	server.AddReceivingMiddleware(once)
	return server.Run(ctx, &mcp.StdioTransport{})
}

// Places where a run stops for good, the first time that the order is charged.
const (
	beforeEffect = "before the effect"
	afterEffect  = "after the effect"
)

type order struct {
	Order string `json:"order"`
	Stop  string `json:"stop,omitempty"`
}

// bank is a downstream that outlives the servers: receipts by order, each of which is an effect.
type bank struct {
	client *redis.Client
	prefix string
}

func (b *bank) key(kind, order string) string { return b.prefix + kind + ":" + order }

// charge is the tool. The DownstreamKey goes with the effect, and the bank does not look at it: it
// books each charge that arrives.
func (b *bank) charge(ctx context.Context, _ *mcp.CallToolRequest,
	in order) (*mcp.CallToolResult, any, error) {
	runs, err := b.client.Incr(ctx, b.key("runs", in.Order)).Result()
	if err != nil {
		return nil, nil, err
	}
	if err := b.stop(ctx, in, runs, beforeEffect); err != nil {
		return nil, nil, err
	}
	receipt := fmt.Sprintf("receipt of %s, run %d of process %d", in.Order, runs, os.Getpid())
	if err := b.client.RPush(ctx, b.key("receipts", in.Order), receipt).Err(); err != nil {
		return nil, nil, err
	}
	if err := b.stop(ctx, in, runs, afterEffect); err != nil {
		return nil, nil, err
	}
	return result(receipt), nil, nil
}

func result(receipt string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: receipt}}}
}

// stop reports that the run has reached a place, and waits there until the process is killed.
func (b *bank) stop(ctx context.Context, in order, runs int64, here string) error {
	if runs > 1 || in.Stop != here {
		return nil
	}
	if err := b.client.Set(ctx, b.key("stopped", in.Order), here, time.Hour).Err(); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.New("nobody has killed this process")
}

// resolve asks the bank by the arguments of the call.
func (b *bank) resolve(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution, error) {
	req, ok := mcpadapter.RequestFrom(ctx)
	if !ok {
		return dedup.Resolution{}, errors.New("it is not the call's context")
	}
	var in order
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
		return dedup.Resolution{}, err
	}
	receipts, err := b.client.LRange(ctx, b.key("receipts", in.Order), 0, -1).Result()
	if err != nil || len(receipts) == 0 {
		return dedup.DidNotHappen(), err
	}
	stored, err := mcpadapter.EncodeResult(result(receipts[0]))
	return dedup.Happened(stored), err
}
