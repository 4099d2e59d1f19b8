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

// openTime bounds how long a server may take to answer the first questions. callTime bounds one
// call.
const (
	openTime = 15 * time.Second
	callTime = 15 * time.Second
)

// errNo ends a command that changes nothing.
var errNo = errors.New("left as it is")

// errNone says that there is no record to change or to show. Often a part of the key's name is
// wrong.
var errNone = errors.New(
	"never seen, forgotten, or its window is over; or its namespace, scope, prefix or table is another")

// run opens the store, and runs the command.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	st, err := open(opening, o)
	if err != nil {
		return o.Server.Unanswered(err)
	}
	defer st.close()
	defer server.CutOff(ctx, st)()
	err = o.Server.Unanswered(st.run(ctx, o, s))
	if errors.Is(err, errNo) || errors.Is(err, errNone) {
		return cli.Fail(cli.No, err)
	}
	return err
}

func (s *store) run(ctx context.Context, o *Options, std *cli.Streams) error {
	switch {
	case o.All:
		return s.resolveAll(ctx, o, std)
	case o.lists():
		return s.printList(ctx, o, std)
	case o.Command == "resolve":
		return s.resolve(ctx, o, std)
	case o.Command == "forget":
		return s.forget(ctx, o, std)
	}
	return s.inspect(ctx, o, std)
}

// look reads the key's record and what is known about the key.
func (s *store) look(ctx context.Context, o *Options) (View, dedup.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := s.find(ctx, o)
	if err != nil {
		return View{}, r, err
	}
	now, err := s.now(ctx)
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
	if o.JSON {
		err = cli.WriteJSON(std.Out, v)
	} else {
		err = v.print(std, o.what())
	}
	if err == nil && r.State == driver.StateAbsent {
		return s.none(o)
	}
	return err
}

// ask shows the key, and requires a yes.
func (o *Options) ask(ctx context.Context, v *View, what string, std *cli.Streams) error {
	if !o.Yes {
		if err := v.print(std, o.what()); err != nil {
			return err
		}
	}
	return o.confirm(ctx, what, std)
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

// ended is the result that resolve and forget write with --json.
type ended struct {
	ID  string `json:"id"`
	Was string `json:"was"`
	Is  string `json:"is"`
}

func (o *Options) report(v *View, is string, out io.Writer) error {
	if o.JSON {
		return cli.WriteJSON(out, ended{v.ID, v.State, is})
	}
	_, err := fmt.Fprintf(out, "%s: was %s, is %s\n", o.what(), v.State, is)
	return err
}

func (s *store) resolve(ctx context.Context, o *Options, std *cli.Streams) error {
	if err := s.completeWindow(o); err != nil {
		return err
	}
	v, r, err := s.look(ctx, o)
	switch {
	case err != nil:
		return err
	case r.State == driver.StateAbsent:
		return s.none(o)
	case r.State != driver.StateUncertain:
		return fmt.Errorf("%s is %v, and not uncertain: %w", o.what(), r.State, errNo)
	}
	if o.DryRun {
		return o.report(&v, "to be "+o.end().String(), std.Out)
	}
	question := "Has its effect happened?"
	if o.Released {
		question = "Has its effect not happened, and may it run again?"
	}
	if err := o.ask(ctx, &v, question, std); err != nil {
		return err
	}
	return s.change(ctx, o, &v, std, func(ctx context.Context) (driver.State, error) {
		return o.end(), s.settle(ctx, o, o.seen(&r))
	})
}

// completeWindow fills in --window.
func (s *store) completeWindow(o *Options) error {
	if err := takeWindow(&o.Window, s.window); err != nil {
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

// settle resolves a key.
func (s *store) settle(ctx context.Context, o *Options, k settle.Key) error {
	if o.Released {
		return settle.Release(ctx, s.Store, k)
	}
	return settle.Done(ctx, s.Store, k)
}

// seen is the key as the user saw it.
func (o *Options) seen(r *dedup.Record) settle.Key {
	return settle.Key{ID: o.ID, Seen: *r, Window: o.Window, Hold: o.Hold}
}

// change makes the confirmed change, and reports the new state of the key.
func (s *store) change(ctx context.Context, o *Options, v *View, std *cli.Streams,
	settled func(context.Context) (driver.State, error)) error {
	calling, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	is, err := settled(calling)
	switch {
	case errors.Is(err, settle.ErrMoved):
		return fmt.Errorf("%s is no longer as it was shown: somebody else has changed it; look again: %w", o.what(), errNo)
	case err != nil:
		o.audit(std, v, "unknown", "error", o.Server.Hide(err.Error()))
		return err
	}
	o.audit(std, v, is.String())
	return o.report(v, is.String(), std.Out)
}

// audit logs who has changed the key.
func (o *Options) audit(std *cli.Streams, v *View, is string, args ...any) {
	cli.Audit(std.Err, o.Command, append([]any{"id", v.ID, "key", o.what(), "store", v.Store,
		"was", v.State, "is", is}, args...)...)
}

func (s *store) forget(ctx context.Context, o *Options, std *cli.Streams) error {
	v, r, err := s.look(ctx, o)
	switch {
	case err != nil:
		return err
	case r.State == driver.StateAbsent:
		return s.none(o)
	case r.State == driver.StateInProgress && r.Remaining > 0:
		return fmt.Errorf("%s is in flight: somebody works on it: %w", o.what(), errNo)
	}
	if err := o.ask(ctx, &v, "Forget it, so that its effect may run again?", std); err != nil {
		return err
	}
	return s.change(ctx, o, &v, std, func(ctx context.Context) (driver.State, error) {
		return settle.Forget(ctx, s.Store, o.seen(&r))
	})
}
