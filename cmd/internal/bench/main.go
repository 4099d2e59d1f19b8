package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
)

const (
	// openTime bounds the first questions, cleanTime the removal of what was made.
	openTime  = 15 * time.Second
	cleanTime = 10 * time.Minute
)

// errFailed is of messages, errLeft of what could not be removed.
var (
	errFailed = errors.New("messages have failed")
	errLeft   = errors.New("something is left on the server")
)

// run measures. When ctx ends it removes what it has made, and returns.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	err := o.bench(ctx, s)
	switch {
	case errors.Is(err, errLeft) && ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, err)
	case errors.Is(err, errLeft), errors.Is(err, errFailed):
		return cli.Fail(cli.No, err)
	}
	return err
}

func (o *Options) bench(ctx context.Context, s *cli.Streams) error {
	errOut := s.Err
	fmt.Fprintln(errOut,
		"onceward bench: this loads the server; whoever uses it meanwhile waits longer")
	if local, err := o.Server.Local(); err != nil {
		return err
	} else if !local && !o.Yes {
		yes, err := cli.Ask(ctx, "The server is on another machine. Load it?", s.In, errOut)
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("not confirmed (--yes does not ask)")
		}
	}
	name := "onceward-bench-" + strings.ToLower(rand.Text()[:12])
	if o.Server.SQL != "" {
		name = strings.ReplaceAll(name, "-", "_")
	}
	t, err := o.connect(name)
	if err != nil {
		return err
	}
	defer t.close()
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	// nothing is written yet; go-redis would go on waiting for a server that hangs
	stop := context.AfterFunc(ctx, t.close)
	if err := t.look(opening); err != nil {
		return o.Server.Unanswered(err)
	}
	stop()
	fmt.Fprintf(errOut, "onceward bench: it writes %s\n", t.remains())
	report, err := o.runOn(ctx, t, errOut)
	if ctx.Err() != nil || err != nil && !errors.Is(err, errLeft) {
		return err
	}
	report.Name = name
	if bad := o.tell(report, s); err == nil {
		err = bad
	}
	return err
}

func (o *Options) connect(name string) (target, error) {
	if o.Server.Redis != "" {
		return newRedis(o, name)
	}
	return newSQL(o, name)
}

// runOn measures, and removes what was made, whatever has happened.
func (o *Options) runOn(ctx context.Context, t target, errOut io.Writer) (report *Report,
	err error) {
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		meter := progress.Start(errOut, "removing the keys", 0)
		defer meter.Stop()
		thorough := err != nil || report.Onceward.failed()+report.Bare.failed() > 0
		if dirty := t.clean(cleaning, thorough); dirty != nil {
			err = fmt.Errorf("%w: %s: %w", errLeft, t.remains(), dirty)
		}
	}()
	rounds := o.rounds()
	meter := progress.Start(errOut, "measuring", int64(rounds))
	defer meter.Stop()
	return o.measure(ctx, t, meter, rounds)
}

// tell writes the report; messages that have failed are an error.
func (o *Options) tell(r *Report, s *cli.Streams) (err error) {
	if o.JSON {
		err = cli.WriteJSON(s.Out, r)
	} else {
		err = r.print(s)
	}
	if err != nil {
		return err
	}
	if n := r.Onceward.failed() + r.Bare.failed(); n > 0 {
		return fmt.Errorf("%d %w", n, errFailed)
	}
	return nil
}
