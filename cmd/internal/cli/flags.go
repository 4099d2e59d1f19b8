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
	if f.instead == nil {
		f.instead = make(map[string][]string)
	}
	f.instead[name] = append(f.instead[name], of...)
}

// Require makes it an error to leave out these flags.
func (f *Flags) Require(names ...string) { f.required = append(f.required, names...) }

// DurationVar registers a flag that takes a duration; days are allowed.
func (f *Flags) DurationVar(to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var((*duration)(to), name, usage)
}

// duration is a pflag.Value.
type duration time.Duration

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// Set implements pflag.Value: days come first, as in 7d or 1d12h.
func (d *duration) Set(text string) error {
	days, rest := 0.0, text
	if number, after, ok := strings.Cut(text, "d"); ok {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return errDuration
		}
		if days, rest = v, after; rest == "" {
			rest = "0"
		}
	}
	v, err := time.ParseDuration(rest)
	if err != nil {
		return errDuration
	}
	*d = duration(v + time.Duration(days*float64(24*time.Hour)))
	return nil
}

var errDuration = errors.New("a duration is written as 30s, 10m, 36h or 7d")

// String implements pflag.Value.
func (d *duration) String() string { return Span(time.Duration(*d)) }

// Span formats a duration without trailing zeros, and in days if it is a whole number of days.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
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
func (f *Flags) ShareVar(to *float64, name string, value float64, usage string) {
	*to = value
	f.Var((*shareValue)(to), name, usage)
}

// shareValue is a pflag.Value.
type shareValue float64

// Type implements pflag.Value.
func (*shareValue) Type() string { return "share" }

// String implements pflag.Value.
func (s *shareValue) String() string { return fmt.Sprintf("%g", *s) }

// Set implements pflag.Value.
func (s *shareValue) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return errors.New("a share is written as 0.05 or 5%")
	}
	if percent {
		v /= 100
	}
	*s = shareValue(v)
	return nil
}

// ChoiceVar registers a flag that takes one of some words.
func (f *Flags) ChoiceVar(to *string, name, value, usage string, choices ...string) {
	*to = value
	if f.choices == nil {
		f.choices = make(map[string][]string)
	}
	f.choices[name] = choices
	f.Var(&choice{to, choices}, name, fmt.Sprintf("%s: %s", usage, strings.Join(choices, ", ")))
}

// choice is a pflag.Value.
type choice struct {
	to  *string
	all []string
}

// Type implements pflag.Value.
func (*choice) Type() string { return "string" }

// String implements pflag.Value.
func (c *choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.all, text) {
		return fmt.Errorf("it is one of %s", strings.Join(c.all, ", "))
	}
	*c.to = text
	return nil
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
	var input *dedup.InputError
	var box *outbox.InputError
	switch {
	case errors.As(err, &input):
		return fmt.Errorf("--%s %s", strings.ToLower(input.Field), input.Reason)
	case errors.As(err, &box):
		return fmt.Errorf("--%s %s", strings.ToLower(box.Field), box.Reason)
	}
	return err
}
