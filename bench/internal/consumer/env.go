package consumer

import (
	"context"

	"github.com/onceward/onceward/bench/internal/harness"
)

// MeasureCPU has the servers' CPU measured where they are processes of their own.
func (e *Env) MeasureCPU() {
	if !e.Redis.Embedded {
		e.Meter.ServerCPU = e.Redis.CPU
	}
	if read, ok := e.Broker.CPU(); ok {
		e.Meter.BrokerCPU = read
	}
}

// Versions names the modules that take part, by their paths.
func (e *Env) Versions(ctx context.Context) (map[string]string, error) {
	versions := harness.Versions(map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/IBM/sarama": "sarama", "github.com/twmb/franz-go/pkg/kfake": "kfake",
	})
	var err error
	versions["redis"], err = e.Redis.Version(ctx)
	return versions, err
}
