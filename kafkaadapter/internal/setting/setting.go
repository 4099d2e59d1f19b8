// Package setting has the defaults and the checks of what the adapters' configurations have
// in common.
package setting

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Settings point into an adapter's Config. The doc comments there say what they mean.
type Settings struct {
	// Package of the Config, for the names of fields in errors.
	Package string

	Deduper                  *dedup.Deduper
	Unclaimed, TakeOver      bool
	Handler, BatchHandler    bool // set
	RangeHandler             bool // likewise
	Own, Partitioner         bool // likewise
	Fingerprint              bool
	Scope, Group             string // GroupKnown: the client tells it later
	GroupKnown               bool
	TopicName                bool // set
	RetryTopics              []string
	Order, Orders            uint8 // chosen, and how many there are
	Workers, BatchMax        *int
	ClaimAhead               *int
	HighWater, LowWater      *int
	CommitCount, MaxAttempts *int
	CommitEvery, Drain       *time.Duration
	Timeout, BusyTimeout     *time.Duration
	RetryBase, RetryMax      *time.Duration
}

// Complete sets what is zero to its default, and returns an [*dedup.InputError] for the first
// bad field.
func (s *Settings) Complete() error {
	s.setDefaults()
	if err := s.checkNegative(); err != nil {
		return err
	}
	return s.checkTogether()
}

// Bad is the error of a field.
func (s *Settings) Bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: s.Package + ".Config." + field,
		Reason: fmt.Sprintf(format, args...)}
}

func (s *Settings) checkNegative() error {
	for _, f := range []struct {
		name string
		n    int
	}{
		{"Workers", *s.Workers}, {"BatchMax", *s.BatchMax}, {"ClaimAhead", *s.ClaimAhead},
		{"HighWater", *s.HighWater},
		{"LowWater", *s.LowWater}, {"CommitCount", *s.CommitCount}, {"MaxAttempts", *s.MaxAttempts},
	} {
		if f.n < 0 {
			return s.Bad(f.name, "is %d; it must not be negative", f.n)
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"CommitEvery", *s.CommitEvery}, {"Drain", *s.Drain}, {"Timeout", *s.Timeout},
		{"BusyTimeout", *s.BusyTimeout}, {"RetryMax", *s.RetryMax}, {"RetryBase", *s.RetryBase},
	} {
		if f.d < 0 {
			return s.Bad(f.name, "is %v; it must not be negative", f.d)
		}
	}
	return nil
}

func (s *Settings) checkTogether() error {
	scope := scopeFault(s.Scope)
	if s.RangeHandler {
		return cmp.Or(s.checkRanges(), s.checkRest(scope))
	}
	switch {
	case !s.Handler && !s.BatchHandler:
		return s.Bad("Handler", "is nil, and so is BatchHandler")
	case s.Handler && s.BatchHandler:
		return s.Bad("BatchHandler", "is set together with Handler")
	}
	return s.checkRest(scope)
}

// byPartition is the number of that Order with every adapter.
const byPartition = 1

// checkRanges refuses whatever would have a range overtaken by a later one, which takes all that
// lies before it for done.
func (s *Settings) checkRanges() error {
	switch {
	case s.Handler || s.BatchHandler:
		return s.Bad("RangeHandler", "is set together with another handler")
	case !s.Unclaimed:
		return s.Bad("Unclaimed", "is false; a RangeHandler records itself what is done")
	case s.Order != byPartition:
		return s.Bad("Order",
			"must be ByPartition with a RangeHandler: in any other order a range would leave out messages that come after it")
	}
	return nil
}

func (s *Settings) checkRest(scope string) error {
	switch {
	case *s.MaxAttempts == 1:
		return s.Bad("MaxAttempts",
			"is 1: messages are claimed ahead of their turn, and one crash would use it up unseen; 0 is no limit, 2 the least")
	case s.TakeOver && s.Unclaimed:
		return s.Bad("TakeOverOlderGeneration",
			"is set together with Unclaimed: there are no claims")
	case s.Deduper == nil && !s.Unclaimed:
		return s.Bad("Deduper", "is nil; set Unclaimed if the handler records messages itself")
	case s.Deduper != nil && s.Unclaimed:
		return s.Bad("Unclaimed", "is set together with Deduper")
	case s.Own && s.Unclaimed:
		return s.Bad("Own", "is set together with Unclaimed: there are no claims to do without")
	case s.Own && !s.Partitioner:
		return s.Bad("Partitioner", "is nil; with Own it must be that of the producers")
	case s.Partitioner && !s.Own:
		return s.Bad("Partitioner", "is set without Own, and would not be asked")
	case s.Own && s.Fingerprint:
		return s.Bad("Fingerprint",
			"is set together with Own: records of owned partitions keep none")
	case s.Order >= s.Orders:
		return s.Bad("Order", "is %d; ByKey, ByPartition and Unordered are known", s.Order)
	case scope != "":
		return s.Bad("Scope", "%s", scope)
	case slices.Contains(s.RetryTopics, ""):
		return s.Bad("RetryTopics", "has an empty name")
	case s.Own && s.TopicName:
		return s.Bad("TopicName",
			"is set together with Own: a record lies with the partition that made it, and is not found from another topic")
	case s.Own && len(s.RetryTopics) > 0:
		return s.Bad("RetryTopics",
			"is set together with Own: a record lies with the partition that made it, and is not found from another topic")
	case *s.LowWater >= *s.HighWater:
		return s.Bad("LowWater", "is %d, not below HighWater (%d)", *s.LowWater, *s.HighWater)
	case *s.RetryBase > *s.RetryMax:
		return s.Bad("RetryBase", "is %v, above RetryMax (%v)", *s.RetryBase, *s.RetryMax)
	case s.Scope == "" && s.Group == "" && !s.GroupKnown && !s.Unclaimed:
		return s.Bad("Group",
			"is empty, and so is Scope: keys are scoped by the group, so that two groups have an effect each")
	}
	return nil
}

// scopeFault is what a Deduper would say of the scope with every message.
func scopeFault(scope string) string {
	_, err := driver.NewID("n", scope, "k")
	if input := (*dedup.InputError)(nil); errors.As(err, &input) {
		return input.Reason
	}
	return ""
}

func (s *Settings) setDefaults() {
	orElse(s.Workers, 32)
	orElse(s.BatchMax, 256)
	orElse(s.ClaimAhead, 512)
	orElse(s.HighWater, 4096)
	orElse(s.LowWater, *s.HighWater/2)
	orElse(s.CommitCount, 1000)
	orElse(s.BusyTimeout, 15*time.Minute)
	orElse(s.CommitEvery, 250*time.Millisecond)
	orElse(s.Drain, 10*time.Second)
	orElse(s.RetryMax, max(30*time.Second, *s.RetryBase))
	orElse(s.RetryBase, min(100*time.Millisecond, *s.RetryMax))
}

func orElse[T comparable](p *T, v T) {
	if *p == *new(T) {
		*p = v
	}
}

// PollFault is what is wrong with how long a client whose requests to a broker wait for each
// other may wait for messages, and empty if nothing is. Such is sarama, whose Broker holds
// its mutex for a request and its response, so a heartbeat to a coordinator that leads a
// consumed partition, too, waits for the poll that is under way. It can lose the mutex to the
// next poll once: after a millisecond of waiting Go hands it over in turn.
func PollFault(poll, heartbeat, session time.Duration) string {
	if 2*poll+heartbeat < session {
		return ""
	}
	return fmt.Sprintf("is %v: a heartbeat may wait for two polls, and with Consumer.Group.Heartbeat.Interval (%v) "+
		"that is not below Consumer.Group.Session.Timeout (%v): the member would be put out of its group while it is alive", poll, heartbeat, session)
}
