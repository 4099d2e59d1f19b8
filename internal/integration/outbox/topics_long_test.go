//go:build long

package outbox_test

import (
	"fmt"
	"testing"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// The figures of docs/evidence/benchmarks.md: `make bench-outbox-topics`.
func TestFailingTopicAheadFigures(t *testing.T) {
	fake, healthy, bad := troubles(t)
	apache := servertest.Kafka(t)
	topic := servertest.Prefix(t)
	createTopic(t, apache, topic, 1, nil)
	for _, c := range plainClients() {
		for _, n := range []int{5, 50, 100_000} {
			for _, name := range bad {
				t.Run(fmt.Sprintf("kfake/%s/%s/%d", c.name, name, n), func(t *testing.T) {
					testFailingTopic(t, func() outbox.Publisher {
						return c.publisher(t, fake)
					}, healthy, name, n, 500)
				})
			}
			t.Run(fmt.Sprintf("apache/%s/missing/%d", c.name, n), func(t *testing.T) {
				testFailingTopic(t, func() outbox.Publisher {
					return c.publisher(t, apache)
				}, topic, servertest.Prefix(t)+"-missing", n, 500)
			})
		}
	}
}
