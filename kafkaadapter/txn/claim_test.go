package txn

import (
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
)

// A handler may use its time after the partition is revoked in several ways.
func TestDrain(t *testing.T) {
	for _, row := range []struct {
		name      string
		takes     time.Duration
		deaf      bool // does not listen to its context
		held      time.Duration
		outputs   []string
		abandoned bool
	}{
		{name: "returns in time", takes: 5 * time.Second, held: 5 * time.Second,
			outputs: outputsOf(0, 4)},
		{name: "listens", takes: time.Minute, held: 8 * time.Second},
		{name: "returns too late to count", takes: 9 * time.Second, deaf: true,
			held: 9 * time.Second},
		{name: "does not listen", takes: time.Minute, deaf: true, held: 10 * time.Second,
			abandoned: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t)
				abandoned := !row.abandoned
				r := start(t, c, func(cfg *Config) {
					cfg.Observer.Revoked = func(_ string, _ int32, a bool) { abandoned = a }
					cfg.Handler = func(ctx context.Context,
						batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
						done := ctx.Done()
						if row.deaf {
							done = nil
						}
						select {
						case <-done:
						case <-time.After(row.takes):
						}
						return PerMessage(upper)(context.WithoutCancel(ctx), batch)
					}
				})
				r.feed(0, 8)
				synctest.Wait()
				began := time.Now()
				assert.NoError(t, r.leave())
				assert.Equal(t, row.held, time.Since(began), "how long it was held")
				assert.Equal(t, row.abandoned, abandoned)
				time.Sleep(time.Hour) // what was abandoned ends, and changes nothing
				assert.Equal(t, row.outputs, c.outputs)
				c.wantClosed()
			})
		})
	}
}

// The drain does not wait for a producer call that takes too long.
func TestDrainDoesNotWaitForABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		r := start(t, c, func(cfg *Config) {
			cfg.Handler = func(context.Context,
				[]*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				return []*sarama.ProducerMessage{{Value: slowEncoder{}}}, nil
			}
		})
		r.feed(0, 4)
		synctest.Wait()
		began := time.Now()
		assert.NoError(t, r.leave())
		assert.Equal(t, 10*time.Second, time.Since(began))
		time.Sleep(time.Hour)
		assert.Empty(t, c.outputs)
		assert.Equal(t, "dial member init committed begin send abort", c.log())
		c.wantClosed()
	})
}

// slowEncoder makes a send take a minute.
type slowEncoder struct{}

func (slowEncoder) Encode() ([]byte, error) {
	time.Sleep(time.Minute)
	return nil, nil
}
func (slowEncoder) Length() int { return 0 }

// Under cooperative rebalancing a partition is revoked while its session lives.
func TestRevokedPartitionOfALivingSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		r := start(t, c)
		r.feed(0, 3)
		time.Sleep(time.Minute)
		close(r.claim.messages)
		assert.NoError(t, <-r.done)
		assert.Equal(t, outputsOf(0, 3), c.outputs)
		c.wantClosed()
	})
}

// Every wait ends with the claim.
func TestRevokedWhileWaiting(t *testing.T) {
	for name, script := range map[string]map[string][]fault{
		"between two attempts":   {"send": {{err: io.EOF, status: abortable}}},
		"for a broker":           {"dial": {{err: io.EOF}}},
		"for a stable offset":    {"committed": {{err: sarama.ErrUnstableOffsetCommit}}},
		"for nothing in special": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t)
				if script != nil {
					c.script = script
				}
				r := start(t, c, func(cfg *Config) {
					cfg.RetryBase, cfg.RetryMax = 1000*time.Hour, 1000*time.Hour
				})
				r.feed(0, 1)
				time.Sleep(time.Second)
				began := time.Now()
				assert.NoError(t, r.leave())
				assert.Zero(t, time.Since(began))
				c.wantClosed()
			})
		})
	}
}

// A handler that ends its goroutine stops the consumer.
func TestHandlerExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		r := start(t, c, func(cfg *Config) {
			cfg.Handler = func(context.Context,
				[]*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				runtime.Goexit()
				return nil, nil
			}
		})
		r.feed(0, 1)
		assert.ErrorIs(t, <-r.done, errHandlerExited)
		assert.Error(t, r.processor.member.Fatal())
		c.wantClosed()
	})
}

// The intake never blocks: a partition whose handler is behind is paused, and resumed. Without Run
// it cannot be paused; then its messages are not read.
func TestPausedWhileBehind(t *testing.T) {
	for _, row := range []struct {
		name string
		run  bool
	}{{"in Run", true}, {"with Consume alone", false}} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { pausedWhileBehind(t, row.run) })
		})
	}
}

func pausedWhileBehind(t *testing.T, run bool) {
	c := newFakeCluster(t)
	var paused []bool
	release := make(chan struct{})
	r := start(t, c, func(cfg *Config) {
		cfg.Observer.Paused = func(_ string, _ int32, on bool) { paused = append(paused, on) }
		cfg.Handler = func(ctx context.Context,
			batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
			<-release
			return PerMessage(upper)(ctx, batch)
		}
	})
	group := &pausableGroup{}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	if run {
		go func() { ran <- r.processor.Run(ctx, group, []string{topic}) }()
		synctest.Wait()
	}
	r.feed(0, 7)
	synctest.Wait()
	assert.Empty(t, paused, "paused too early")
	fed := make(chan struct{})
	go func() {
		r.feed(7, 20) // what had been fetched already
		close(fed)
	}()
	synctest.Wait()
	select {
	case <-fed:
		assert.True(t, run, "read without end")
	default:
		assert.False(t, run, "the intake blocks")
	}
	assert.Equal(t, []bool{true}, paused)
	if run {
		assert.Equal(t, 1, group.paused, "partitions of the group")
	}
	close(release)
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.False(t, paused[len(paused)-1], "paused %v", paused)
	assert.Zero(t, group.paused, "partitions of the group")
	assert.Equal(t, outputsOf(0, 20), c.committedOutputs())
	assert.NoError(t, r.leave())
	if stop(); run {
		assert.NoError(t, <-ran)
	}
}

// pausableGroup counts the partitions that are paused.
type pausableGroup struct {
	sarama.ConsumerGroup
	paused int
}

func (g *pausableGroup) Errors() <-chan error { return nil }

// Consume has no session: the claims of this test are fed by hand.
func (g *pausableGroup) Consume(ctx context.Context, _ []string,
	_ sarama.ConsumerGroupHandler) error {
	<-ctx.Done()
	return nil
}

func (g *pausableGroup) Pause(set map[string][]int32)  { g.paused += len(set[topic]) }
func (g *pausableGroup) Resume(set map[string][]int32) { g.paused -= len(set[topic]) }

// A pause ends with its claim: otherwise sarama would keep it for the next claim of the partition.
func TestPauseEndsWithTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		var paused []bool
		r := start(t, c, func(cfg *Config) {
			cfg.Observer.Paused = func(_ string, _ int32, on bool) { paused = append(paused, on) }
			cfg.Handler = func(ctx context.Context,
				_ []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
				<-ctx.Done()
				return nil, nil
			}
		})
		r.feed(0, 8)
		assert.NoError(t, r.leave())
		assert.Equal(t, []bool{true, false}, paused)
		assert.Equal(t, int64(-1), c.offset, "what is committed")
	})
}
