package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/outbox"
)

// Flags are the flags of a command. If a flag's usage names its value `file` or `directory`, shells
// complete it to one.
type Flags struct {
	*pflag.FlagSet
	settings []string
	instead  map[string][]string
	required []string
	choices  map[string][]string
	// sources holds the source of each value that does not come from the command line.
	sources map[string]string
}

// Given reports whether the flag is on the command line.
func (f *Flags) Given(name string) bool { return f.Changed(name) && f.sources[name] == "" }

// Setting marks flags that may also be set in the environment and in the file of settings.
func (f *Flags) Setting(names ...string) { f.settings = append(f.settings, names...) }

// IsSetting reports whether the flag was passed to Setting.
func (f *Flags) IsSetting(name string) bool { return slices.Contains(f.settings, name) }

// Instead declares that one flag makes others meaningless. If that flag is on the command line, or
// comes from a stronger source, settings of the other flags are ignored.
func (f *Flags) Instead(name string, of ...string) {
	f.instead[name] = append(f.instead[name], of...)
}

// Require makes it an error to leave out these flags.
func (f *Flags) Require(names ...string) { f.required = append(f.required, names...) }

// value is a pflag.Value.
type value[T any] struct {
	to     *T
	kind   string
	parse  func(text string) (T, error)
	format func(T) string
}

// Type implements pflag.Value.
func (v *value[T]) Type() string { return v.kind }

// String implements pflag.Value.
func (v *value[T]) String() string { return v.format(*v.to) }

// Set implements pflag.Value.
func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.to = parsed
	}
	return err
}

// DurationVar registers a flag that takes a duration; days are allowed.
func (f *Flags) DurationVar(to *time.Duration, name string, preset time.Duration, usage string) {
	*to = preset
	f.Var(&value[time.Duration]{to, "duration", parseDuration, Span}, name, usage)
}

// parseDuration reads a duration. Days come first, as in 7d or 1d12h.
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	switch {
	case !found:
		days, rest = "0", text
	case rest == "":
		rest = "0"
	}
	n, errDays := strconv.ParseFloat(days, 64)
	d, err := time.ParseDuration(rest)
	if errDays != nil || err != nil {
		return 0, errors.New("a duration is written as 30s, 10m, 36h or 7d")
	}
	return d + time.Duration(n*float64(24*time.Hour)), nil
}

// Span formats a duration without trailing zeros, and in days if it is a whole number of days.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

// Round rounds to the precision that people want.
func Round(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d
}

// ShareVar registers a flag that takes a share as 0.05 or 5%.
func (f *Flags) ShareVar(to *float64, name string, preset float64, usage string) {
	*to = preset
	f.Var(&value[float64]{to, "share", parseShare,
		func(share float64) string { return fmt.Sprint(share) }}, name, usage)
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errors.New("a share is written as 0.05 or 5%")
	}
	if percent {
		share /= 100
	}
	return share, nil
}

// ChoiceVar registers a flag that takes one of some words.
func (f *Flags) ChoiceVar(to *string, name, preset, usage string, choices ...string) {
	*to = preset
	f.choices[name] = choices
	all := strings.Join(choices, ", ")
	parse := func(text string) (string, error) {
		if !slices.Contains(choices, text) {
			return "", fmt.Errorf("it is one of %s", all)
		}
		return text, nil
	}
	f.Var(&value[string]{to, "string", parse, strings.Clone}, name, usage+": "+all)
}

// complete tells shells which values the flags can have.
func (f *Flags) complete(c *cobra.Command) {
	f.VisitAll(func(flag *pflag.Flag) {
		if f.IsSetting(flag.Name) {
			flag.Usage += " [$" + variable(flag.Name) + "]"
		}
		var err error
		switch value, _ := pflag.UnquoteUsage(flag); {
		case f.choices[flag.Name] != nil:
			err = c.RegisterFlagCompletionFunc(flag.Name,
				cobra.FixedCompletions(f.choices[flag.Name], cobra.ShellCompDirectiveNoFileComp))
		case value == "file":
			err = c.MarkFlagFilename(flag.Name)
		case value == "directory":
			err = c.MarkFlagDirname(flag.Name)
		case value != "":
			err = c.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions)
		}
		if err != nil {
			panic(err) // cannot happen: the flag was just listed, and is registered once
		}
	})
}

// missing returns the names of the required flags that have no value.
func (f *Flags) missing() error {
	var names []string
	for _, name := range f.required {
		if flag := f.Lookup(name); !flag.Changed || flag.Value.String() == "" {
			names = append(names, "--"+name)
		}
	}
	switch n := len(names); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is missing", names[0])
	default:
		return fmt.Errorf("%s and %s are missing", strings.Join(names[:n-1], ", "), names[n-1])
	}
}

// Named replaces the field of a configuration in an error by the flag of the same name.
func Named(err error) error {
	if input, ok := errors.AsType[*dedup.InputError](err); ok {
		return fmt.Errorf("--%s %s", strings.ToLower(input.Field), input.Reason)
	}
	if box, ok := errors.AsType[*outbox.InputError](err); ok {
		return fmt.Errorf("--%s %s", strings.ToLower(box.Field), box.Reason)
	}
	return err
}
