package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// strict has cobra's own commands, help and completion, refuse a name that they do not know: cobra
// prints their help instead, and exits with 0.
func (s *Streams) strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		case "completion":
			c.RunE = s.usage
		}
	}
}

// usage shows help as an error: a command that has only subcommands was run without one.
func (s *Streams) usage(c *cobra.Command, _ []string) error {
	c.SetOut(s.Err)
	return errors.Join(c.Help(), &Exit{Code: Usage})
}

// unknown extends cobra's error about an unknown command by the command that may be meant, or by
// how to list the commands.
func unknown(c *cobra.Command, err error) error {
	var name string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q for", &name); n != 1 {
		return err
	}
	if !c.HasSubCommands() { // help
		c = c.Root()
	}
	return suggest(fmt.Errorf("unknown command %q", name), c, "", name,
		c.CommandPath()+" --help lists the commands")
}

// suggest extends an error by the names below c that may be meant, or by where they are listed.
func suggest(err error, c *cobra.Command, dashes, name, listed string) error {
	c.SuggestionsMinimumDistance = 2
	found := c.SuggestionsFor(name)
	if len(found) == 0 {
		return fmt.Errorf("%w; %s", err, listed)
	}
	slices.Sort(found)
	return fmt.Errorf("%w; did you mean %s%s?", err, dashes, strings.Join(found, " or "+dashes))
}
