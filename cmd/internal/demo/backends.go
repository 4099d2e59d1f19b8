package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
)

// session is the timeout of the consumer group's sessions.
const session = time.Second

func (d *demo) openKafka() error {
	c, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	d.closers = append(d.closers, c.Close)
	d.kafka = c.ListenAddrs()
	return nil
}

func (d *demo) openRedis() error {
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
	d.closers = append(d.closers, func() { ticker.Stop(); close(stop); m.Close() })
	d.redis = m.Addr()
	return nil
}

func (d *demo) openLedger() error {
	dir, err := os.MkdirTemp("", "onceward-demo-")
	if err != nil {
		return fmt.Errorf("make room for the ledger: %w", err)
	}
	if !d.Keep {
		d.closers = append(d.closers, func() { _ = os.RemoveAll(dir) })
	}
	d.ledger = filepath.Join(dir, "ledger.db")
	return nil
}
