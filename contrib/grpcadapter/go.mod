module github.com/onceward/onceward/contrib/grpcadapter

go 1.26.0

require (
	github.com/onceward/onceward v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261026165753-2ffab32bce7e
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/onceward/onceward => ../../
