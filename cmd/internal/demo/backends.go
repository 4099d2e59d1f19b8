package demo

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
)

// backends are the embedded servers of a run.
type backends struct {
	kafka   []string
	redis   []string
	ledger  ledger.Location
	session time.Duration // of the consumer group
	run     string        // part of the names of everything that this run creates

	closers []func()
}

// openBackends starts the embedded servers.
func openBackends(o Options) (*backends, error) {
	b := &backends{run: strings.ToLower(rand.Text()[:8])}
	for _, step := range []func() error{b.openKafka, b.openRedis,
		func() error { return b.openLedger(o.Keep) }} {
		if err := step(); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *backends) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

func (b *backends) openKafka() error {
	c, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	b.closers = append(b.closers, c.Close)
	b.kafka, b.session = c.ListenAddrs(), time.Second
	return nil
}

func (b *backends) openRedis() error {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	// miniredis has no clock of its own, so a goroutine lets its keys age.
	ticker, stop := time.NewTicker(10*time.Millisecond), make(chan struct{})
	go func() {
		last := time.Now()
		for {
			select {
			case now := <-ticker.C:
				m.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	}()
	b.closers = append(b.closers, func() { ticker.Stop(); close(stop); m.Close() })
	b.redis = []string{m.Addr()}
	return nil
}

func (b *backends) openLedger(keep bool) error {
	b.ledger = ledger.Location{Table: "onceward_demo_" + b.run}
	dir, err := os.MkdirTemp("", "onceward-demo-")
	if err != nil {
		return fmt.Errorf("make room for the ledger: %w", err)
	}
	if !keep {
		b.closers = append(b.closers, func() { _ = os.RemoveAll(dir) })
	}
	b.ledger.File = filepath.Join(dir, "ledger.db")
	return nil
}
