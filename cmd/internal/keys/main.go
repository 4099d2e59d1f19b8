package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/settle"
)

// callTime bounds one call.
const callTime = 15 * time.Second

// errNo ends a command that changes nothing.
var errNo = errors.New("left as it is")

// errNone says that there is no record to change or to show. Often a part of the key's name is
// wrong.
var errNone = errors.New(
	"never seen, forgotten, or its window is over; or its namespace, scope, prefix or table is another")

// run opens the store, and runs the command.
func (o *Options) run(ctx context.Context, std *cli.Streams) error {
	s, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	defer server.CutOff(ctx, s.conn)()
	switch {
	case o.All:
		err = s.resolveAll(ctx, o, std)
	case o.lists():
		err = s.printList(ctx, o, std)
	case o.finds():
		err = s.inspect(ctx, o, std)
	default:
		err = s.settle(ctx, o, std)
	}
	if err = o.Server.Unanswered(err); errors.Is(err, errNo) || errors.Is(err, errNone) {
		return cli.Fail(cli.No, err)
	}
	return err
}

// look reads the key's record and what is known about the key.
func (s *store) look(ctx context.Context, o *Options) (View, dedup.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := s.find(ctx, o)
	if err != nil {
		return View{}, r, err
	}
	now, err := s.now(ctx, o)
	v := s.view(o.ID, &r, now)
	if o.ID == (driver.ID{}) {
		v.ID = "" // KEY has led to no key
	}
	v.Key, v.FoundBy, v.Looked = o.typed, o.foundAs, o.looked
	v.Owner.name(o)
	return v, r, err
}

func (s *store) inspect(ctx context.Context, o *Options, std *cli.Streams) error {
	v, r, err := s.look(ctx, o)
	if err != nil {
		return err
	}
	if o.Result {
		v.preview(r.Result)
	}
	if o.Command == "explain" {
		return s.explain(ctx, o, &v, &r, std)
	}
	err = o.write(std, v, func() error { return v.print(std, o.what()) })
	if err == nil && r.State == driver.StateAbsent {
		return s.none(o)
	}
	return err
}

// write writes an answer as JSON, or for people.
func (o *Options) write(std *cli.Streams, answer any, people func() error) error {
	if o.JSON {
		return cli.WriteJSON(std.Out, answer)
	}
	return people()
}

// confirm requires a yes.
func (o *Options) confirm(ctx context.Context, question string, std *cli.Streams) error {
	if o.Yes {
		return nil
	}
	yes, err := cli.Ask(ctx, question, std.In, std.Out)
	if err == nil && !yes {
		err = fmt.Errorf("not confirmed (--yes does not ask): %w", errNo)
	}
	return err
}

// report says how resolve or forget has changed a key.
func (o *Options) report(v *View, is string, out io.Writer) error {
	if o.JSON {
		return cli.WriteJSON(out, struct {
			ID  string `json:"id"`
			Was string `json:"was"`
			Is  string `json:"is"`
		}{v.ID, v.State, is})
	}
	_, err := fmt.Fprintf(out, "%s: was %s, is %s\n", o.what(), v.State, is)
	return err
}

// settle shows a key, requires a yes, and resolves or forgets it.
func (s *store) settle(ctx context.Context, o *Options, std *cli.Streams) error {
	if err := s.completeWindow(o); err != nil {
		return err
	}
	v, r, err := s.look(ctx, o)
	forget := o.Command == "forget"
	switch {
	case err != nil:
		return err
	case r.State == driver.StateAbsent:
		return s.none(o)
	case forget && r.State == driver.StateInProgress && r.Remaining > 0:
		return fmt.Errorf("%s is in flight: somebody works on it: %w", o.what(), errNo)
	case !forget && r.State != driver.StateUncertain:
		return fmt.Errorf("%s is %v, and not uncertain: %w", o.what(), r.State, errNo)
	case o.DryRun:
		return o.report(&v, "to be "+o.end().String(), std.Out)
	}
	question := "Has its effect happened?"
	switch {
	case forget:
		question = "Forget it, so that its effect may run again?"
	case o.Released:
		question = "Has its effect not happened, and may it run again?"
	}
	if !o.Yes {
		err = v.print(std, o.what())
	}
	if err == nil {
		err = o.confirm(ctx, question, std)
	}
	if err != nil {
		return err
	}
	is, err := s.change(ctx, o, &v, std)
	switch {
	case errors.Is(err, settle.ErrMoved):
		return fmt.Errorf("%s is no longer as it was shown: somebody else has changed it; look again: %w", o.what(), errNo)
	case err != nil:
		return err
	}
	return o.report(&v, is, std.Out)
}

// completeWindow fills in --window.
func (s *store) completeWindow(o *Options) error {
	if err := s.TakeWindow(&o.Window); err != nil {
		return err
	}
	if o.Done && o.Window == 0 {
		return errors.New("--window is missing: how long is it to be remembered that the key is done?")
	}
	return nil
}

// end is the state in which resolve leaves a key.
func (o *Options) end() driver.State {
	if o.Released {
		return driver.StateReleased
	}
	return driver.StateSucceeded
}

// change makes the confirmed change of a key that is still as the user saw it, and returns the new
// state. It logs who has changed the key.
func (s *store) change(ctx context.Context, o *Options, v *View, std *cli.Streams) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	k := settle.Key{ID: o.ID, Seen: v.record, Window: o.Window, Hold: o.Hold}
	state := o.end()
	var err error
	switch {
	case o.Command == "forget":
		state, err = settle.Forget(ctx, s.Store, k)
	case o.Released:
		err = settle.Release(ctx, s.Store, k)
	default:
		err = settle.Done(ctx, s.Store, k)
	}
	if errors.Is(err, settle.ErrMoved) {
		return "", err
	}
	is, failure := state.String(), []any(nil)
	if err != nil {
		is, failure = "unknown", []any{"error", o.Server.Hide(err.Error())}
	}
	cli.Audit(std.Err, o.Command, append([]any{"id", v.ID, "key", o.what(), "store", v.Store,
		"was", v.State, "is", is}, failure...)...)
	return is, err
}
