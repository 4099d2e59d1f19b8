package dedup

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/stepcode"
)

// Step runs fn as a part of the attempt under ctx and records that it has finished. When the
// handler runs again, Step returns the recorded value and does not run fn. It suits handlers of
// several effects: charge, then mail.
//
// The record of a step survives release, lapse and uncertainty of the key, and is gone when the
// key is done. A crash between fn and the record runs fn again; where that must not happen
// either, call [MarkIrreversible] before it.
//
// Name is 1-64 bytes of printable UTF-8: keep it, and the type T, from one version of a program
// to the next. A key has at most 64 steps. Their values are stored as [Do] stores its value, and
// share 64 KiB. A value that does not fit, or cannot be encoded, is not kept: this call returns
// nil, and later ones [ErrNoResult].
//
// A new step costs one round trip, a finished one none. Errors without a run of fn:
//
//   - an [*InputError] for a bad name, a nil fn, the 65th step, a name whose step is running,
//     or a ctx that is not that of an attempt;
//   - [ErrLeaseLost] when the claim is lost, and ErrNoResult;
//   - [driver.ErrUnreadable] when the steps, or the value as T, cannot be read.
//
// An error of fn is returned, and nothing is recorded. Two errors come with the value of fn:
// ErrLeaseLost when the claim was lost before the record, and one for which [OutcomeUnknown] is
// true when the record was not confirmed. A later attempt may then run fn again; in this attempt,
// the same Step only records it. Without a claim, and in Observe mode, fn runs unrecorded.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	c, err := claimUnder(ctx)
	if err != nil {
		return zero, err
	}
	if fn == nil {
		return zero, &InputError{Field: "Func", Reason: "is nil"}
	}
	if err := checkText("Name", name, stepcode.MaxName); err != nil {
		return zero, err
	}
	if c.shadow || c.d.cfg.Mode == Observe {
		return fn(ctx)
	}
	if err := c.open(); err != nil {
		return zero, err
	}
	done, found, err := c.ownSteps().begin(c.Record.Steps, name)
	switch {
	case err != nil:
		return zero, err
	case found:
		return replayStep[T](ctx, c, done)
	}
	defer c.ownSteps().leave(name) // also when fn panics
	value, err := fn(ctx)
	if err != nil {
		return value, err
	}
	return value, c.recordStep(ctx, encodeStep(c, name, value))
}

// encodeStep makes the record of the step that returned value.
func encodeStep[T any](c *Claim, name string, value T) stepcode.Step {
	data, err := encode(value)
	switch {
	case err != nil:
		c.d.cfg.Logger.Warn("dedup: value of a step was not kept", idAttr(c.id), "step", name,
			"error", err)
		return stepcode.Step{Name: name, Kind: stepcode.NotKept}
	case data == nil:
		return stepcode.Step{Name: name, Kind: stepcode.Nil}
	}
	return stepcode.Step{Name: name, Kind: stepcode.Value, Value: bytes.Clone(data)}
}

// replayStep returns the value that a finished step has returned.
func replayStep[T any](ctx context.Context, c *Claim, done stepcode.Step) (T, error) {
	var zero T
	if !done.Told {
		if err := c.saveSteps(ctx); err != nil {
			return zero, err
		}
	}
	if done.Kind == stepcode.NotKept {
		return zero, ErrNoResult
	}
	return decode[T](bytes.Clone(done.Value))
}

// recordStep notes that a step is finished, and tells the store. It does so although the
// caller may have gone: the step has happened, and must be recorded.
func (c *Claim) recordStep(ctx context.Context, s stepcode.Step) error {
	if !c.ownSteps().add(s) {
		c.d.cfg.Logger.Warn("dedup: value of a step was not kept", idAttr(c.id), "step", s.Name,
			"bytes", len(s.Value))
	}
	after := c.d.afterEffect(ctx)
	defer after.End(context.Canceled)
	return c.saveSteps(after)
}

// saveSteps writes all finished steps. Two calls may overtake each other: the later one has
// more steps, and stores keep the longer list.
func (c *Claim) saveSteps(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	blob, n := c.ownSteps().blob()
	if err := c.declare(ctx, driver.Renewal{Steps: blob}); err != nil {
		return err
	}
	c.ownSteps().told(n)
	return nil
}

// steps are the finished and the running steps of a claim. Finished ones are only ever
// added, so that their encoded form only grows.
type steps struct {
	mu      sync.Mutex
	loaded  bool
	err     error // why the recorded ones cannot be read
	done    []stepcode.Step
	size    int // of done, encoded
	running map[string]bool
}

// ownSteps returns the steps of the claim. They are made when needed: few claims have any.
func (c *Claim) ownSteps() *steps {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		c.steps = new(steps)
	}
	return c.steps
}

// begin returns the finished step of that name. Otherwise it reserves the name, and the
// caller must call leave.
func (s *steps) begin(stored []byte, name string) (stepcode.Step, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		s.done, s.err = stepcode.Decode(stored)
		s.loaded, s.size, s.running = true, max(len(stored), 1), make(map[string]bool)
	}
	if s.err != nil {
		return stepcode.Step{}, false, fmt.Errorf("%w: steps: %w", driver.ErrUnreadable, s.err)
	}
	for _, d := range s.done {
		if d.Name == name {
			return d, true, nil
		}
	}
	switch {
	case s.running[name]:
		return stepcode.Step{}, false, &InputError{Field: "Name",
			Reason: "is that of a step which is running"}
	case len(s.done)+len(s.running) >= stepcode.Max:
		return stepcode.Step{}, false, &InputError{Field: "Name",
			Reason: fmt.Sprintf("is one too many: a key has at most %d steps", stepcode.Max)}
	}
	s.running[name] = true
	return stepcode.Step{}, false, nil
}

func (s *steps) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, name)
}

// add notes a finished step. It reports false when its value does not fit: there is
// always room for the names of the steps to come.
func (s *steps) add(d stepcode.Step) (kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept = true
	room := stepcode.MaxBytes - s.size - (stepcode.Max-1-len(s.done))*stepcode.MaxHead
	if d.Size() > room {
		d.Kind, d.Value, kept = stepcode.NotKept, nil, false
	}
	s.done = append(s.done, d)
	s.size += d.Size()
	return kept
}

// blob encodes what is finished, and says how many steps that are.
func (s *steps) blob() ([]byte, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stepcode.Encode(s.done), len(s.done)
}

// told notes that the first n finished steps are on record.
func (s *steps) told(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		s.done[i].Told = true
	}
}
