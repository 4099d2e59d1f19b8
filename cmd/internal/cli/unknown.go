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
		switch {
		case c.Name() == "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		case c.Name() == "completion" && Find(c) == nil:
			c.RunE = func(c *cobra.Command, _ []string) error {
				c.SetOut(s.Err)
				return errors.Join(c.Help(), &Exit{Code: Usage})
			}
		}
	}
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
	c.SuggestionsMinimumDistance = 2
	if found := c.SuggestionsFor(name); len(found) > 0 {
		slices.Sort(found)
		return fmt.Errorf("unknown command %q; did you mean %s?", name, strings.Join(found, " or "))
	}
	return fmt.Errorf("unknown command %q; %s --help lists the commands", name, c.CommandPath())
}
