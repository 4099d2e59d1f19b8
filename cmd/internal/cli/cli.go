// Package cli holds what the commands of onceward share: flags and their settings, exit codes,
// help, and output that fits the terminal.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes. Command.Exits says what they mean for a command.
const (
	Done        = 0
	No          = 1 // the answer is no, or something is left to do
	Usage       = 2
	Critical    = 3
	Interrupted = 130
)

// usual are the meanings of the codes for which a command has no other.
var usual = map[int]string{
	Done:        "success",
	Usage:       "wrong usage, or a server that cannot be reached or refuses",
	Interrupted: "interrupted",
}

// Command is one command of the command line.
type Command struct {
	// Use is the name and the operands; at most MaxArgs operands are possible.
	Use     string
	MaxArgs int
	// Short is one line, Long the rest of the help, and Example some lines of shell.
	Short, Long, Example string
	// Exits are the meanings of exit codes that differ from the usual ones.
	Exits map[int]string
	// Flags registers flags. Nil: there are none.
	Flags func(f *Flags)
	// Check validates flags and operands, and connects to nothing. Its errors name the flag.
	Check func(args []string) error
	// Run does the work. If it returns an error, the exit code is 2, unless the error is an Exit.
	Run func(ctx context.Context, s *Streams) error
	// Hide removes passwords from the text of an error. Nil: there are none.
	Hide func(text string) string
	// Hidden commands are not listed.
	Hidden bool
}

// ExitCodes returns all codes with their meanings.
func (c *Command) ExitCodes() map[int]string {
	all := maps.Clone(usual)
	maps.Copy(all, c.Exits)
	return all
}

// Exit is an error with an exit code of its own.
type Exit struct {
	Code int
	Err  error // nil: the command prints no error
}

// Error implements error.
func (e *Exit) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *Exit) Unwrap() error { return e.Err }

// Fail gives an error an exit code. If err is nil, no error is printed.
func Fail(code int, err error) error { return &Exit{code, err} }

// exitOf returns the Exit in an error, or an Exit with the code Usage.
func exitOf(err error) *Exit {
	if exit, ok := errors.AsType[*Exit](err); ok {
		return exit
	}
	return &Exit{Usage, err}
}

// Root returns a command line with these commands.
func Root(s *Streams, long string, commands ...*Command) *cobra.Command {
	root := &cobra.Command{
		Use: "onceward", Long: long, SilenceErrors: true, SilenceUsage: true, RunE: s.usage,
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetHelpFunc(s.help)
	for _, c := range commands {
		root.AddCommand(c.cobra(s))
	}
	root.DisableSuggestions = true // unknown names them in one line
	return root
}

// Execute runs a command line and returns its exit code.
func Execute(ctx context.Context, s *Streams, root *cobra.Command, args []string) int {
	logging.Disable() // go-redis logs errors that it also returns
	s.strict(root)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return Done
	}
	exit := exitOf(err)
	switch {
	case exit.Err == nil: // the command has already written its answer
		return exit.Code
	case ctx.Err() != nil && exit.Code != Interrupted:
		exit = &Exit{Interrupted, errors.New("interrupted")}
	}
	fmt.Fprintf(s.Err, "%s: %v\n", c.CommandPath(), unknown(c, exit.Err))
	return exit.Code
}

// Run runs one command with these arguments, and returns its exit code.
func Run(ctx context.Context, s *Streams, c *Command, args ...string) int {
	root := Root(s, "", c)
	return Execute(ctx, s, root, append([]string{root.Commands()[0].Name()}, args...))
}

// Parse sets and checks the flags of a command, but does not run it.
func Parse(c *Command, args ...string) error {
	only := *c
	only.Run = func(context.Context, *Streams) error { return nil }
	var errOut strings.Builder
	s := &Streams{Out: io.Discard, Err: &errOut}
	if code := Run(context.Background(), s, &only, args...); code != Done {
		return errors.New(strings.TrimSpace(errOut.String()))
	}
	return nil
}

// commandKey is the context key of the Command behind a command of cobra.
type commandKey struct{}

func (c *Command) cobra(s *Streams) *cobra.Command {
	made := &cobra.Command{
		Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Hidden: c.Hidden,
		DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
	}
	made.SetContext(context.WithValue(context.Background(), commandKey{}, c))
	f := &Flags{FlagSet: made.Flags(), instead: make(map[string][]string),
		choices: make(map[string][]string), sources: make(map[string]string)}
	f.SortFlags = false
	if c.Flags != nil {
		c.Flags(f)
		f.complete(made)
	}
	made.SetFlagErrorFunc(explain)
	made.RunE = func(run *cobra.Command, args []string) error {
		err := c.run(run, s, f, args)
		if err == nil || exitOf(err).Err == nil {
			return err
		}
		text := f.origins(err.Error())
		if c.Hide != nil {
			text = c.Hide(text)
		}
		return &Exit{exitOf(err).Code, errors.New(text)}
	}
	return made
}

func (c *Command) run(made *cobra.Command, s *Streams, f *Flags, args []string) error {
	if len(args) > c.MaxArgs {
		return fmt.Errorf("unexpected argument %q", args[c.MaxArgs])
	}
	if err := f.settle(made, s.Env); err != nil {
		return err
	}
	if c.Check != nil {
		if err := c.Check(args); err != nil {
			return err
		}
	}
	return c.Run(made.Root().Context(), s)
}

// explain says what is wrong with a flag. It extends an error about an unknown flag by the flag
// that may be meant, or by how to list the flags.
func explain(c *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if ok && errors.Is(err, strconv.ErrSyntax) {
		flag, wanted := invalid.GetFlag(), map[string]string{"bool": "true or false",
			"float64": "a number"}
		return fmt.Errorf("--%s is %q; %s is wanted", flag.Name, invalid.GetValue(),
			cmp.Or(wanted[flag.Value.Type()], "a whole number"))
	}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := missing.GetSpecifiedName()
	if short := missing.GetSpecifiedShortnames(); short != "" {
		if name, _, _ = strings.Cut(short, "="); c.Flags().Lookup(name) != nil {
			return fmt.Errorf("-%s: the names of flags have two dashes: --%s", name, name)
		}
	}
	near := &cobra.Command{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		near.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return suggest(err, near, "--", name, c.CommandPath()+" --help lists the flags")
}

// Report writes a report: as JSON for programs, or with inWords for people.
func (s *Streams) Report(report any, asJSON bool, inWords func(*Streams) error) error {
	if asJSON {
		return WriteJSON(s.Out, report)
	}
	return inWords(s)
}

// WriteJSON writes a value as JSON for programs.
func WriteJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
