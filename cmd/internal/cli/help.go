package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Find returns the Command from which a command of cobra was made, or nil for cobra's own commands.
func Find(c *cobra.Command) *Command {
	if c.Context() == nil {
		return nil
	}
	found, _ := c.Context().Value(commandKey{}).(*Command)
	return found
}

// help is cobra's help function.
func (s *Streams) help(c *cobra.Command, _ []string) {
	width, out := cmp.Or(s.Width, 100), c.OutOrStdout()
	for paragraph := range strings.SplitSeq(strings.TrimSpace(cmp.Or(c.Long, c.Short)), "\n\n") {
		fmt.Fprintf(out, "%s\n\n", flow(paragraph, width))
	}
	if c.HasParent() {
		fmt.Fprintf(out, "Usage:\n  %s\n", Synopsis(c))
	} else {
		fmt.Fprintf(out, "Usage:\n  %s COMMAND [flags]\n", c.Name())
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n  %s\n",
			strings.ReplaceAll(strings.TrimSpace(c.Example), "\n", "\n  "))
	}
	if c.HasAvailableSubCommands() {
		listCommands(out, c, width)
	}
	if flags := c.LocalFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(out, "\nFlags:\n%s", flags.FlagUsagesWrapped(width))
	}
	if made := Find(c); made != nil {
		fmt.Fprint(out, "\nExit codes:\n")
		codes := made.ExitCodes()
		for _, code := range slices.Sorted(maps.Keys(codes)) {
			fmt.Fprintf(out, "  %-3d  %s\n", code, wrap(codes[code], width, 7, 7))
		}
	}
}

// Synopsis returns the usage line of a command.
func Synopsis(c *cobra.Command) string {
	text := c.UseLine()
	if c.HasAvailableLocalFlags() && !strings.HasSuffix(text, " [flags]") {
		text += " [flags]"
	}
	return text
}

// listCommands lists the subcommands of c.
func listCommands(out io.Writer, c *cobra.Command, width int) {
	fmt.Fprint(out, "\nCommands:\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			const column = 14
			fmt.Fprintf(out, "  %-*s%s\n", column-2, sub.Name(),
				wrap(sub.Short, width, column, column))
		}
	}
}

// flow wraps a paragraph again, unless it is indented or a list.
func flow(paragraph string, width int) string {
	if strings.Contains(paragraph, "\n  ") || strings.HasPrefix(paragraph, "  ") {
		return paragraph
	}
	return wrap(strings.Join(strings.Fields(paragraph), " "), width, 0, 0)
}
