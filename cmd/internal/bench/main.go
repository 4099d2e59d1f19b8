package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/onceward/onceward/cmd/internal/confirm"
	"github.com/onceward/onceward/cmd/internal/progress"
)

// Exit codes of Main.
const (
	// ExitDone: measured, and nothing has failed.
	ExitDone = 0
	// ExitFailed: messages have failed, or something is left on the server.
	ExitFailed = 1
	// ExitUsage: wrong flags, no confirmation, or a server that cannot be used. Nothing is
	// measured.
	ExitUsage = 2
	// ExitInterrupted: ctx ended.
	ExitInterrupted = 130
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

// Main measures with the command's flags and returns an exit code. When ctx ends it removes what it
// has made, and returns.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	o, err := ParseOptions(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitDone
	}
	if err == nil {
		logging.Disable() // go-redis writes what it also returns
		err = o.run(ctx, in, out, errOut)
	}
	if err == nil {
		return ExitDone
	}
	code := ExitUsage
	switch {
	case errors.Is(err, errLeft):
		code = ExitFailed
		if ctx.Err() != nil {
			code = ExitInterrupted
		}
	case ctx.Err() != nil:
		code, err = ExitInterrupted, errors.New("interrupted")
	case errors.Is(err, errFailed):
		code = ExitFailed
	}
	fmt.Fprintf(errOut, "onceward bench: %s\n", o.Server.Hide(err.Error()))
	return code
}

func (o *Options) run(ctx context.Context, in io.Reader, out, errOut io.Writer) error {
	fmt.Fprintln(errOut,
		"onceward bench: this loads the server; whoever uses it meanwhile waits longer")
	if local, err := o.Server.Local(); err != nil {
		return err
	} else if !local && !o.Yes {
		yes, err := confirm.Ask(ctx, "The server is on another machine. Load it?", in, errOut)
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("not confirmed (-yes does not ask)")
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
	if bad := o.tell(report, out); err == nil {
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
func (o *Options) tell(r *Report, out io.Writer) (err error) {
	if o.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.print(out)
	}
	if err != nil {
		return err
	}
	if n := r.Onceward.failed() + r.Bare.failed(); n > 0 {
		return fmt.Errorf("%d %w", n, errFailed)
	}
	return nil
}
