package kafkadriver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// Bad returns the error about a field of [kafkaadapter.Config].
func (e *Engine) Bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: "kafkaadapter.Config." + field,
		Reason: fmt.Sprintf(format, args...)}
}

func (e *Engine) setDefaults() {
	t, a := &e.Tuning, &e.Attempts
	t.Workers = cmp.Or(t.Workers, 32)
	t.BatchMax = cmp.Or(t.BatchMax, 256)
	t.BatchWait = cmp.Or(t.BatchWait, 2*time.Millisecond)
	t.ClaimAhead = cmp.Or(t.ClaimAhead, 512)
	t.HighWater = cmp.Or(t.HighWater, 4096)
	t.LowWater = cmp.Or(t.LowWater, t.HighWater/2)
	t.CommitCount = cmp.Or(t.CommitCount, 1000)
	t.CommitEvery = cmp.Or(t.CommitEvery, 250*time.Millisecond)
	t.Drain = cmp.Or(t.Drain, 10*time.Second)
	a.BusyTimeout = cmp.Or(a.BusyTimeout, 15*time.Minute)
	a.RetryMax = cmp.Or(a.RetryMax, max(30*time.Second, a.RetryBase))
	a.RetryBase = cmp.Or(a.RetryBase, min(100*time.Millisecond, a.RetryMax))
}

func (e *Engine) check() error {
	for _, check := range []func() error{e.checkNegative, e.checkHandlers, e.checkOwn,
		e.checkDelayed, e.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) checkNegative() error {
	t, a := &e.Tuning, &e.Attempts
	for _, f := range []struct {
		name  string
		value int64
		shown any
	}{
		{"Tuning.Workers", int64(t.Workers), t.Workers},
		{"Tuning.BatchMax", int64(t.BatchMax), t.BatchMax},
		{"Tuning.BatchWait", int64(t.BatchWait), t.BatchWait},
		{"Tuning.ClaimAhead", int64(t.ClaimAhead), t.ClaimAhead},
		{"Tuning.HighWater", int64(t.HighWater), t.HighWater},
		{"Tuning.LowWater", int64(t.LowWater), t.LowWater},
		{"Tuning.CommitCount", int64(t.CommitCount), t.CommitCount},
		{"Tuning.CommitEvery", int64(t.CommitEvery), t.CommitEvery},
		{"Tuning.Drain", int64(t.Drain), t.Drain},
		{"Attempts.Max", int64(a.Max), a.Max},
		{"Attempts.Timeout", int64(a.Timeout), a.Timeout},
		{"Attempts.BusyTimeout", int64(a.BusyTimeout), a.BusyTimeout},
		{"Attempts.RetryMax", int64(a.RetryMax), a.RetryMax},
		{"Attempts.RetryBase", int64(a.RetryBase), a.RetryBase},
	} {
		if f.value < 0 {
			return e.Bad(f.name, "is %v; it must not be negative", f.shown)
		}
	}
	return nil
}

func (e *Engine) checkHandlers() error {
	one, many := e.Handler != nil, e.BatchHandler != nil
	switch {
	case e.RangeHandler != nil && (one || many):
		return e.Bad("RangeHandler", "is set together with another handler")
	case e.RangeHandler != nil && !e.Unclaimed:
		return e.Bad("Unclaimed", "is false; a RangeHandler records itself what is done")
	// In any other order a later range would overtake an earlier one, and the later one's fence
	// would count everything before it as done.
	case e.RangeHandler != nil && e.Order != kafkaadapter.ByPartition:
		return e.Bad("Order", "must be ByPartition with a RangeHandler: in any other order a range would leave out messages that come after it")
	case e.RangeHandler == nil && !one && !many:
		return e.Bad("Handler", "is nil, and so is BatchHandler")
	case one && many:
		return e.Bad("BatchHandler", "is set together with Handler")
	case e.Deduper == nil && !e.Unclaimed:
		return e.Bad("Deduper", "is nil; set Unclaimed if the handler records messages itself")
	case e.Deduper != nil && e.Unclaimed:
		return e.Bad("Unclaimed", "is set together with Deduper")
	}
	return nil
}

func (e *Engine) checkOwn() error {
	lies := "is set together with Own: a record lies with the partition that made it, and is not found from another topic"
	switch own := e.Own; {
	case own == nil:
		return nil
	case own.Acquire == nil:
		return e.Bad("Own.Acquire", "is nil")
	case own.Partitioner == nil:
		return e.Bad("Own.Partitioner", "is nil; it must be that of the producers")
	case e.Unclaimed:
		return e.Bad("Own", "is set together with Unclaimed: there are no claims to do without")
	case e.Fingerprint:
		return e.Bad("Fingerprint",
			"is set together with Own: records of owned partitions keep none")
	case e.TopicName != nil:
		return e.Bad("TopicName", "%s", lies)
	case len(e.RetryTopics) > 0:
		return e.Bad("RetryTopics", "%s", lies)
	}
	return nil
}

func (e *Engine) checkDelayed() error {
	all := e.Attempts.Delayed
	for i, d := range all {
		at := fmt.Sprintf("Attempts.Delayed[%d].", i)
		switch {
		case d.Topic == "":
			return e.Bad(at+"Topic", "is empty")
		case d.Delay <= 0:
			return e.Bad(at+"Delay", "is %v; it must be positive", d.Delay)
		case e.Deduper != nil && d.Delay >= e.Deduper.Config().Hold:
			return e.Bad(at+"Delay",
				"is %v, and the Deduper's Hold %v: it must be shorter, or finished steps run again",
				d.Delay, e.Deduper.Config().Hold)
		case slices.ContainsFunc(all[:i], func(o kafkaadapter.DelayedTopic) bool {
			return o.Topic == d.Topic
		}):
			return e.Bad(at+"Topic", "is %q, as one before it is", d.Topic)
		}
	}
	switch set := len(all) > 0; {
	case !set && e.Attempts.Producer != nil:
		return e.Bad("Attempts.Producer", "is set, and Attempts.Delayed is empty")
	case set && e.Attempts.Producer == nil:
		return e.Bad("Attempts.Producer", "is nil; Attempts.Delayed needs it")
	case set && e.RangeHandler != nil:
		return e.Bad("Attempts.Delayed", "is set together with RangeHandler")
	case set && e.Own != nil:
		return e.Bad("Attempts.Delayed", "is set together with Own: a record lies with the partition that made it, and is not found from another topic")
	}
	return nil
}

func (e *Engine) checkRest() error {
	t, a, scope := &e.Tuning, &e.Attempts, scopeFault(e.Scope)
	switch {
	case a.Max == 1:
		return e.Bad("Attempts.Max",
			"is 1: messages are claimed ahead of their turn, and one crash would use it up unseen; 0 means no limit, 2 is the least")
	case e.Allow.TakeOver && e.Unclaimed:
		return e.Bad("Allow.TakeOver", "is set together with Unclaimed: there are no claims")
	case e.Order > kafkaadapter.Unordered:
		return e.Bad("Order", "is %d; ByKey, ByPartition and Unordered are known", e.Order)
	case scope != "":
		return e.Bad("Scope", "%s", scope)
	case slices.Contains(e.RetryTopics, ""):
		return e.Bad("RetryTopics", "has an empty name")
	case t.LowWater >= t.HighWater:
		return e.Bad("Tuning.LowWater", "is %d, not below HighWater (%d)", t.LowWater, t.HighWater)
	case a.RetryBase > a.RetryMax:
		return e.Bad("Attempts.RetryBase", "is %v, above RetryMax (%v)", a.RetryBase, a.RetryMax)
	}
	return nil
}

// scopeFault returns why a Deduper would refuse the scope of every message, or an empty text.
func scopeFault(scope string) string {
	_, err := driver.NewID("n", scope, "k")
	if input := (*dedup.InputError)(nil); errors.As(err, &input) {
		return input.Reason
	}
	return ""
}

// Field is a field of [kafkaadapter.Config], and whether it is set.
type Field struct {
	Name string
	Set  bool
}

// Refuse returns an [*dedup.InputError] that names the first field that is set, or nil.
func Refuse(user string, fields []Field) error {
	for _, f := range fields {
		if f.Set {
			return &dedup.InputError{Field: "kafkaadapter.Config." + f.Name,
				Reason: "is set: " + user + " has no use for it"}
		}
	}
	return nil
}
