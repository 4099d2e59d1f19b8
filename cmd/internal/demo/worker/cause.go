package worker

import (
	"context"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// whyDuplicate explains a duplicate by the effect that it found, and checks causes in the order of
// a Deduper. The Atomic and Naive compositions keep no origin, but the ledger does.
func (w *worker) whyDuplicate(ctx context.Context, q ledger.Queryer, m *kafkaadapter.Message,
	id string) (driver.Cause, error) {
	first, ok, err := w.ledger.First(ctx, q, string(w.cfg.Composition), id)
	switch {
	case err != nil:
		return "", err
	case !ok || first.Partition != m.Partition || first.Offset != m.Offset:
		return driver.ProducerRetry, nil
	case first.Generation != w.generation.Load():
		return driver.RebalanceReplay, nil
	}
	return driver.BrokerRedelivery, nil
}
