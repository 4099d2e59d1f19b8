package docs_test

// The recipes of docs/guides/queues.md are compiled with these, which nothing else imports.
import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	_ "github.com/apache/pulsar-client-go/pulsar"
	_ "github.com/hibiken/asynq"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/riverdriver/riverpgxv5"
)
