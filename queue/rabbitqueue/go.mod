module github.com/onceward/onceward/queue/rabbitqueue

go 1.26.0

require (
	github.com/onceward/onceward v0.0.0
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/onceward/onceward => ../../
