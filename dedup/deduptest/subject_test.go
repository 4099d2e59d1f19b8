package deduptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

// shop counts the effects of messages, each of which takes a while.
type shop struct {
	mu   sync.Mutex
	sold map[string]int
}

func (s *shop) sell(message string) {
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[message]++
}

func (s *shop) effects(message string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sold[message]
}

var errDown = errors.New("the downstream is down")

// handlers are ways to handle a message. blame is the failure that each must cause, or "" for none.
var handlers = map[string]struct {
	deliver func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error
	config  dedup.Config
	atomic  bool
	blame   string
}{
	"Do": {deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
		_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
			s.sell(message)
			return 1, nil
		})
		return err
	}},
	"Do with steps, longer than a lease": {deliver: func(ctx context.Context, d *dedup.Deduper,
		s *shop, message string) error {
		_, err := dedup.Do(ctx, d, message, func(ctx context.Context) (int, error) {
			if _, err := dedup.Step(ctx, "reserve", func(context.Context) (int, error) {
				return 1, nil
			}); err != nil {
				return 0, err
			}
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			s.sell(message)
			return 1, nil
		})
		return err
	}},
	"by hand": {deliver: func(ctx context.Context, d *dedup.Deduper, s *shop,
		message string) error {
		claim, err := d.Claim(ctx, message)
		if err != nil {
			return err
		}
		if claim.Outcome == dedup.Duplicate {
			return nil
		}
		if claim.Outcome != dedup.Acquired {
			return claim.Err()
		}
		s.sell(message)
		return claim.Complete(ctx, nil)
	}},
	"asks the downstream": {deliver: func(ctx context.Context, d *dedup.Deduper, s *shop,
		message string) error {
		_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sold[message] = 1
			return 1, nil
		})
		return err
	}, atomic: true},
	"marks before the effect": {blame: "is lost",
		deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
			first, err := d.Mark(ctx, message)
			if first {
				s.sell(message)
			}
			return err
		}},
	"takes in flight for done": {blame: "is lost",
		deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
			_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
				s.sell(message)
				return 1, nil
			})
			if errors.Is(err, dedup.ErrInFlight) {
				return nil
			}
			return err
		}},
	"fails after the effect": {blame: "2 effects, and 1 would be explained",
		deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
			_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
				s.sell(message)
				if s.effects(message) == 1 {
					return 0, errDown
				}
				return 1, nil
			})
			return err
		}},
	"looks, and marks afterwards": {blame: "2 effects, and 1 would be explained",
		deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
			seen, err := d.Seen(ctx, message)
			if err != nil || seen {
				return err
			}
			s.sell(message)
			_, err = d.Mark(ctx, message)
			return err
		}},
	"a crash doubles what must not be": {blame: "2 effects, and 1 would be explained", atomic: true,
		deliver: func(ctx context.Context, d *dedup.Deduper, s *shop, message string) error {
			_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
				s.sell(message)
				return 1, nil
			})
			return err
		}},
	"fails for ever": {blame: "was never acknowledged, at last for the downstream is down",
		deliver: func(ctx context.Context, d *dedup.Deduper, _ *shop, message string) error {
			_, err := dedup.Do(ctx, d, message, func(context.Context) (int, error) {
				return 0, errDown
			})
			return err
		}},
}

// TestTwiceAndStorm: neither finds anything wrong in a right handler, and each reports the faults
// of the other handlers.
func TestTwiceAndStorm(t *testing.T) {
	for name, c := range handlers {
		for what, run := range map[string]func(testing.TB, Subject) Report{
			"twice": Twice,
			"storm": func(t testing.TB, s Subject) Report {
				return Storm(t, s, StormConfig{Seed: 7, Rate: 0.2, Messages: 300, Deliveries: 2,
					Processes: 32})
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &shop{sold: map[string]int{}}
					r := &recorder{TB: t}
					report := run(r, Subject{
						Deliver: func(ctx context.Context, d *dedup.Deduper, message string) error {
							return c.deliver(ctx, d, s, message)
						},
						Effects: s.effects, Config: c.config, Atomic: c.atomic,
					})
					said := strings.Join(r.messages, "\n")
					assert.False(t, c.blame == "" && r.failed, "it said %q, want %q in it", said,
						c.blame)
					assert.Contains(t, said, c.blame, "it said %q", said)
					assert.NotZero(t, report.Faults, "too little happened")
					assert.GreaterOrEqual(t, report.Deliveries, 12)
					assert.False(t, c.blame == "" && !c.atomic && len(report.Doubled) == 0,
						"no crash between effect and record doubled anything")
				})
			})
		}
	}
}
