// Package flags parses what follows the name of a command.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/outbox"
)

// Parse sets the flags of f from args, which hold nothing else. Asked for help it writes usage and
// the flags to out and returns flag.ErrHelp; every other error is the caller's to print.
func Parse(f *flag.FlagSet, args []string, usage string, out io.Writer) error {
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			Help(f, usage, out)
		}
		return Explain(f, err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}

// Explain adds to an error of f.Parse what it leaves out: how durations are written, and where the
// flags are listed.
func Explain(f *flag.FlagSet, err error) error {
	text := err.Error()
	if strings.HasPrefix(text, "flag provided but not defined: ") {
		return fmt.Errorf("%w; onceward %s -h lists the flags", err, f.Name())
	}
	_, rest, ok := strings.Cut(text, " for flag -")
	name, _, _ := strings.Cut(rest, ":")
	if known := f.Lookup(name); ok && known != nil {
		if g, ok := known.Value.(flag.Getter); ok {
			if _, ok := g.Get().(time.Duration); ok {
				return fmt.Errorf("%w: a duration is written as 30s, 10m or 192h, and there is no unit for days", err)
			}
		}
	}
	return err
}

// Taker is an output that wants the flags themselves, in place of a text about them: that of
// completion, which asks every command for help.
type Taker interface{ Take(f *flag.FlagSet) }

// Help writes usage and the flags to out.
func Help(f *flag.FlagSet, usage string, out io.Writer) {
	if t, ok := out.(Taker); ok {
		t.Take(f)
		return
	}
	fmt.Fprint(out, usage)
	f.SetOutput(out)
	f.PrintDefaults()
}

// Named names the flag where an error names the field of a configuration that has the flag's name.
func Named(err error) error {
	var input *dedup.InputError
	var box *outbox.InputError
	switch {
	case errors.As(err, &input):
		return fmt.Errorf("-%s %s", strings.ToLower(input.Field), input.Reason)
	case errors.As(err, &box):
		return fmt.Errorf("-%s %s", strings.ToLower(box.Field), box.Reason)
	}
	return err
}

// Share registers a flag that takes a share as 0.05 or 5%.
func Share(f *flag.FlagSet, to *float64, name string, value float64, text string) {
	*to = value
	if value != 0 {
		text += fmt.Sprintf(" (default %g)", value)
	}
	f.Func(name, text, func(s string) error {
		number, percent := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return errors.New("is no number")
		}
		if percent {
			v /= 100
		}
		*to = v
		return nil
	})
}
