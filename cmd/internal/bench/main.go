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
	// openTime bounds the first calls to the server, and cleanTime bounds the removal of everything
	// that the run has created.
	openTime  = 15 * time.Second
	cleanTime = 10 * time.Minute
)

// errFailed reports that messages have failed, and errLeft that the run could not remove everything
// that it had created.
var (
	errFailed = errors.New("messages have failed")
	errLeft   = errors.New("something is left on the server")
)

// target is a server to measure.
type target interface {
	title() string
	// look checks whether the server can be used, and writes nothing.
	look(ctx context.Context) error
	// open creates what the run needs.
	open(ctx context.Context) error
	// send runs the effect of a message once, and reports whether it was a duplicate.
	send(ctx context.Context, key string) (duplicate bool, err error)
	// full reports whether the server has no room for more.
	full(ctx context.Context) (bool, error)
	// remains describes what a killed run leaves behind, and clean removes it.
	remains() string
	clean(ctx context.Context) error
	close()
}

// run measures. When ctx ends, it removes what it has created, and returns.
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
	fmt.Fprintln(s.Err,
		"onceward bench: this loads the server; whoever uses it meanwhile waits longer")
	if err := o.confirm(ctx, s); err != nil {
		return err
	}
	t, err := o.connect("onceward-bench-" + strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return err
	}
	defer t.close()
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	// Nothing is written yet. Without closing the client here, go-redis would go on waiting for a
	// server that hangs.
	stop := context.AfterFunc(ctx, t.close)
	if err := t.look(opening); err != nil {
		return o.Server.Unanswered(err)
	}
	stop()
	fmt.Fprintf(s.Err, "onceward bench: it writes %s\n", t.remains())
	report, err := o.runOn(ctx, t, s.Err)
	if ctx.Err() != nil || err != nil && !errors.Is(err, errLeft) {
		return err
	}
	return errors.Join(err, report.write(s, o.JSON))
}

func (o *Options) confirm(ctx context.Context, s *cli.Streams) error {
	local, err := o.Server.Local()
	if err != nil || local || o.Yes {
		return err
	}
	yes, err := cli.Ask(ctx, "The server is on another machine. Load it?", s.In, s.Err)
	if err == nil && !yes {
		err = errors.New("not confirmed (--yes does not ask)")
	}
	return err
}

func (o *Options) connect(name string) (target, error) {
	if o.Server.Redis != "" {
		return newRedis(o, name)
	}
	return newSQL(o, strings.ReplaceAll(name, "-", "_"))
}

// runOn measures, and always removes what it has created.
func (o *Options) runOn(ctx context.Context, t target, errOut io.Writer) (_ *Report, err error) {
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		meter := progress.Start(errOut, "removing the keys", 0)
		defer meter.Stop()
		if dirty := t.clean(cleaning); dirty != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s: %w", errLeft, t.remains(), dirty))
		}
	}()
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	meter := progress.Start(errOut, "measuring", int64(o.For/time.Second))
	defer meter.Stop()
	return o.measure(ctx, t, meter)
}
