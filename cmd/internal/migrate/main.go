package migrate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/confirm"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

// Exit codes of Main.
const (
	// ExitDone: nothing is to be done, or it is done, or printed.
	ExitDone = 0
	// ExitLeft: something is to be done, or is left as it is.
	ExitLeft = 1
	// ExitUsage: wrong flags, a server that cannot be reached or refuses, or tables that nobody
	// should go on with.
	ExitUsage = 2
	// ExitInterrupted: ctx ended.
	ExitInterrupted = 130
)

// lookTime bounds what a server may take to tell what there is. A migration is not bounded.
const lookTime = 15 * time.Second

// longStep is how long a step takes that is told of where there is no terminal.
const longStep = 2 * time.Second

// errLeft ends a command that leaves things as they are.
var errLeft = errors.New("left as it is")

// Main runs the command with its flags and returns an exit code. It returns soon after ctx has
// ended: the step that is under way then is undone, or, in MySQL, begun again by the next run.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	o, err := ParseOptions(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitDone
	}
	code := ExitUsage
	if err == nil {
		code, err = run(ctx, &o, in, out, errOut)
	}
	switch {
	case err == nil:
		return code
	case ctx.Err() != nil:
		code, err = ExitInterrupted, errors.New("interrupted")
		if o.Apply {
			err = errors.New("interrupted: a version that was not finished is begun again by the next run")
		}
	case errors.Is(err, errLeft):
		code = ExitLeft
	}
	fmt.Fprintf(errOut, "onceward migrate: %s\n", o.Server.Hide(err.Error()))
	return code
}

func run(ctx context.Context, o *Options, in io.Reader, out, errOut io.Writer) (int, error) {
	db, err := o.open()
	if err != nil {
		return ExitUsage, err
	}
	defer func() { _ = db.Close() }()
	c, err := newComponent(o, db)
	if err != nil {
		return ExitUsage, err
	}
	if o.Print != "" {
		return o.print(c, out)
	}
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, err := look(looking, o, db, c)
	if err != nil {
		return ExitUsage, o.Server.Unanswered(err)
	}
	if s.dropsTables() {
		s.Drops = c.holds
	}
	if o.Apply && !s.done() {
		if err := s.apply(ctx, o, c, in, out, errOut); err != nil {
			return ExitUsage, err
		}
	}
	code := ExitDone
	if !s.done() && !s.Applied {
		code = ExitLeft
	}
	return code, s.write(o, out)
}

// open makes a pool. For -dialect it is never connected: stores want one to be made.
func (o *Options) open() (*sql.DB, error) {
	if o.Server.SQL == "" {
		return sql.Open("sqlite", ":memory:")
	}
	return o.Server.OpenSQL(true)
}

// apply takes the steps, and puts down which were taken: another run may have taken some.
func (s *State) apply(ctx context.Context, o *Options, c *component, in io.Reader,
	out, errOut io.Writer) error {
	act := c.up
	if s.Target < s.Version {
		act = c.down
	}
	if s.Drops != "" {
		if err := s.confirm(ctx, o, in, out); err != nil {
			return err
		}
	}
	show := progress.OnTerminal(errOut)
	meter := progress.Start(errOut, "migrating "+s.name(), 0)
	defer meter.Stop()
	taken, err := s.watched(ctx, act, func(step Step) {
		if took := step.took(); show || took >= longStep {
			meter.Say(step.text() + ": " + took.String())
		}
	})
	if err != nil {
		return s.explain(err)
	}
	reading, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s.Steps, s.Applied = taken, true
	s.Version, err = c.version(reading)
	return err
}

// watched acts, and returns the steps that were taken. What is told after act has returned, by a
// driver that did not heed its context, is nobody's concern any more.
func (s *State) watched(ctx context.Context, act func(context.Context, int) error,
	tell func(Step)) ([]Step, error) {
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
		tell(done)
	})
	err := act(observed, s.Target)
	mu.Lock()
	defer mu.Unlock()
	over = true
	return taken, err
}

// planned finds what the plan has of a step that was taken.
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

// explain says what may be behind an error of statements that met a table of another's.
func (s *State) explain(err error) error {
	if s.Version == 0 && s.Note != "" {
		return fmt.Errorf("%w (%s was there before; where it is another's, name another with -table)", err, s.name())
	}
	return err
}

// confirm wants -drop, and a yes.
func (s *State) confirm(ctx context.Context, o *Options, in io.Reader, out io.Writer) error {
	if !o.Drop {
		return fmt.Errorf("-drop is missing: version %d to %d of %s drops %s: %w", s.Version,
			s.Target, s.name(), s.Drops, errLeft)
	}
	if o.Yes {
		return nil
	}
	if err := s.print(out, false); err != nil {
		return err
	}
	yes, err := confirm.Ask(ctx, "Drop it?", in, out)
	if err == nil && !yes {
		err = fmt.Errorf("not confirmed (-yes does not ask): %w", errLeft)
	}
	return err
}

// write tells what there is, or was done.
func (s *State) write(o *Options, out io.Writer) error {
	if !o.JSON {
		return s.print(out, true)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}
