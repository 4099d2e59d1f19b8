package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

// lookTime bounds how long a server may take to report its state. A migration has no bound.
const lookTime = 15 * time.Second

// longStep is the least duration of a step that is shown when there is no terminal.
const longStep = 2 * time.Second

// errLeft ends a command that changes nothing.
var errLeft = errors.New("left as it is")

// run shows what is to be done, and does it with --apply. It returns soon after ctx has ended: the
// step that is running is rolled back or, in MySQL, the next run begins it again.
func (o *Options) run(ctx context.Context, std *cli.Streams) error {
	open := o.Server.OpenSQL
	if o.Server.SQL == "" { // with --dialect the pool never connects, but a store needs one
		open = func(bool) (*sql.DB, error) { return sql.Open("sqlite", ":memory:") }
	}
	db, err := open(true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	c, err := newComponent(o, db)
	if err != nil {
		return err
	}
	if o.Print != "" {
		return o.print(c, std.Out)
	}
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, err := look(looking, o, db, c)
	if err != nil {
		return o.Server.Unanswered(err)
	}
	if s.dropsTables() {
		s.Drops = c.holds
	}
	if o.Apply && !s.done() {
		err := s.apply(ctx, o, c, std)
		switch {
		case ctx.Err() != nil:
			return cli.Fail(cli.Interrupted,
				errors.New("interrupted: the next run begins a version again that was not finished"))
		case errors.Is(err, errLeft):
			return cli.Fail(cli.No, err)
		case err != nil:
			return err
		}
	}
	if err = std.Report(s, o.JSON, s.print); err == nil && !s.done() && !s.Applied {
		return cli.Fail(cli.No, nil)
	}
	return err
}

// apply takes the steps, and records which ones it took: another run may have taken some.
func (s *State) apply(ctx context.Context, o *Options, c *component,
	std *cli.Streams) error {
	act := c.up
	if s.Target < s.Version {
		act = c.down
	}
	if s.Drops != "" {
		if err := s.confirm(ctx, o, std); err != nil {
			return err
		}
	}
	show := progress.OnTerminal(std.Err)
	meter := progress.Start(std.Err, "migrating "+s.name(), 0)
	defer meter.Stop()
	taken, err := s.watched(ctx, act, func(step Step) {
		if took := step.took(); show || took >= longStep {
			meter.Say(step.text() + ": " + took.String())
		}
	})
	for _, step := range taken {
		cli.Audit(std.Err, "migrate", "table", s.name(), "kind", s.Kind, "dialect", s.Dialect,
			"was", step.From, "is", step.To, "version", step.Name)
	}
	switch {
	case err != nil && s.Version == 0 && s.Note != "":
		return fmt.Errorf(
			"%w (%s was there before; where it is another's, name another with --table)", err, s.name())
	case err != nil:
		return err
	}
	reading, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s.Steps, s.Applied = taken, true
	s.Version, err = c.version(reading)
	return err
}

// watched calls act, and returns the steps that were taken. A driver that ignores its context may
// report steps after act has returned: watched leaves them out.
func (s *State) watched(ctx context.Context, act func(context.Context, int) error,
	report func(Step)) ([]Step, error) {
	var mu sync.Mutex
	taken, over := []Step{}, false
	observed := sqlmigrate.Observe(ctx, func(step sqlmigrate.Step) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		done := s.planned(step)
		taken = append(taken, done)
		report(done)
	})
	err := act(observed, s.Target)
	mu.Lock()
	defer mu.Unlock()
	over = true
	return taken, err
}

// planned finds the planned step for a step that was taken.
func (s *State) planned(step sqlmigrate.Step) Step {
	done := Step{From: step.From, To: step.To}
	for _, p := range s.Steps {
		if p.From == step.From && p.To == step.To {
			done = p
		}
	}
	done.Milliseconds = float64(step.Took.Microseconds()) / 1000
	return done
}

// confirm requires --drop, and a yes.
func (s *State) confirm(ctx context.Context, o *Options, std *cli.Streams) error {
	if !o.Drop {
		return fmt.Errorf("--drop is missing: version %d to %d of %s drops %s: %w", s.Version,
			s.Target, s.name(), s.Drops, errLeft)
	}
	if o.Yes {
		return nil
	}
	if err := std.Fields(s.fields()...); err != nil {
		return err
	}
	yes, err := cli.Ask(ctx, "Drop it?", std.In, std.Out)
	if err == nil && !yes {
		err = fmt.Errorf("not confirmed (--yes does not ask): %w", errLeft)
	}
	return err
}
