package grpcadapter_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// A payment that is sent twice is made once.
func ExampleUnaryServerInterceptor() {
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	run, err := httpadapter.Claimed(d)
	if err != nil {
		panic(err)
	}
	once, err := grpcadapter.UnaryServerInterceptor(run, byAccount, grpcadapter.Config{
		Fingerprint: func(_ string, req proto.Message) []byte {
			// the fields that name the operation
			return []byte(req.(*wrapperspb.StringValue).GetValue())
		},
	})
	if err != nil {
		panic(err)
	}

	server := grpc.NewServer(grpc.ChainUnaryInterceptor( /* authentication, */ once))
	server.RegisterService(description("Charge"),
		&service{handle: func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
			fmt.Println("charging", req.GetValue())
			return wrapperspb.String("receipt 17"), nil
		}})
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.GracefulStop()

	conn, err := grpc.NewClient("passthrough:///payments",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "account", "acme",
		grpcadapter.KeyMetadata, "order-1")
	for _, amount := range []string{"5 EUR", "5 EUR", "7 EUR"} {
		var header metadata.MD
		receipt := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, charge, wrapperspb.String(amount), receipt, grpc.Header(&header))
		fmt.Printf("%q %v %v\n", receipt.GetValue(), header.Get(grpcadapter.ReplayedMetadata), err)
	}
	// Output:
	// charging 5 EUR
	// "receipt 17" [] <nil>
	// "receipt 17" [true] <nil>
	// "" [] rpc error: code = FailedPrecondition desc = this idempotency-key was used with another request
}
