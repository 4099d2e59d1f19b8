package mcpadapter_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// An agent that calls again gets the first result; the order names the operation.
func Example() {
	ctx := context.Background()
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{Namespace: "agents",
		Window: 24 * time.Hour, LeaseTTL: 10 * time.Second, Wait: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(ctx) }()
	run, err := httpadapter.Claimed(d)
	if err != nil {
		panic(err)
	}
	once, err := mcpadapter.New(run, mcpadapter.Unscoped, mcpadapter.Config{Name: "payments",
		Tools: map[string]mcpadapter.Tool{"refund": {KeyFields: []string{"order"}}}})
	if err != nil {
		panic(err)
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "payments"}, nil)
	type refund struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "refund"}, func(_ context.Context, _ *mcp.CallToolRequest,
		in refund) (*mcp.CallToolResult, any, error) {
		fmt.Println("refunding", in.Order)
		receipt := &mcp.TextContent{Text: "receipt 17"}
		return &mcp.CallToolResult{Content: []mcp.Content{receipt}}, nil, nil
	})
	server.AddReceivingMiddleware(once)

	here, there := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, there, nil); err != nil {
		panic(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(ctx, here, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	for _, amount := range []int{5, 5, 7} {
		res, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "refund",
			Arguments: refund{"o-1", amount}})
		if err != nil {
			fmt.Println(strings.HasSuffix(err.Error(), "another operation needs another key"))
			continue
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// refunding o-1
	// receipt 17
	// receipt 17
	// true
}
