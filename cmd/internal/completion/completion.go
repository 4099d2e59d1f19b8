// Package completion writes what a shell needs to complete the command line: the commands and
// flags that the commands themselves have.
package completion

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

// Exit codes of Main.
const (
	// ExitDone: the script is written.
	ExitDone = 0
	// ExitUsage: wrong flags, or it cannot be written.
	ExitUsage = 2
)

// Command is one of the command line.
type Command struct {
	Name, Text string
	// Help runs the command with -h.
	Help func(out io.Writer)
	// Operands are the words that follow it, when they are known.
	Operands []string
}

// entry is a flag, as a template wants it.
type entry struct {
	Name, Text string
	Value      string // what it is called; none for a switch
}

// File reports whether the value is the name of a file, or of a directory.
func (e entry) File() bool { return strings.EqualFold(e.Value, "file") || e.Value == "directory" }

// shown is a command, as a template wants it.
type shown struct {
	Command
	Flags []entry
}

// taker is a flags.Taker.
type taker struct{ flags []entry }

// Write takes what a command without flags says.
func (t *taker) Write(p []byte) (int, error) { return len(p), nil }

// Take implements flags.Taker.
func (t *taker) Take(f *flag.FlagSet) {
	f.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if of, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && of.IsBoolFlag() {
			value = ""
		} else if value == "" {
			value = "value"
		}
		first, _, _ := strings.Cut(text, "\n")
		t.flags = append(t.flags, entry{f.Name, first, value})
	})
}

// Each template is the script of one shell.
var (
	//go:embed bash.tmpl
	bash string
	//go:embed zsh.tmpl
	zsh string
	//go:embed fish.tmpl
	fish string

	scripts = map[string]string{"bash": bash, "zsh": zsh, "fish": fish}
)

// Shells are those that there is a script for.
var Shells = []string{"bash", "zsh", "fish"}

const usage = `Usage: onceward completion bash|zsh|fish

Writes a script by which the shell completes commands and flags:

  bash   source <(onceward completion bash)
  zsh    source <(onceward completion zsh)
  fish   onceward completion fish | source

Put the line into ~/.bashrc, ~/.zshrc (after compinit) or ~/.config/fish/config.fish.

Exit code: 0 success; 2 wrong usage.
`

// Main writes the script for the shell that args name and returns an exit code.
func Main(args []string, commands []Command, out, errOut io.Writer) int {
	switch {
	case len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]):
		fmt.Fprint(out, usage)
		return ExitDone
	case len(args) != 1 || scripts[args[0]] == "":
		fmt.Fprintf(errOut, "onceward completion: one of %s is wanted\n",
			strings.Join(Shells, ", "))
		return ExitUsage
	}
	if err := write(args[0], commands, out); err != nil {
		fmt.Fprintf(errOut, "onceward completion: %v\n", err)
		return ExitUsage
	}
	return ExitDone
}

func write(shell string, commands []Command, out io.Writer) error {
	all := make([]shown, 0, len(commands))
	for _, c := range commands {
		var t taker
		c.Help(&t)
		all = append(all, shown{c, t.flags})
	}
	t, err := template.New(shell).Funcs(template.FuncMap{"quote": quote, "bracket": bracket,
		"join": strings.Join}).Parse(scripts[shell])
	if err != nil {
		return err
	}
	return t.Execute(out, all)
}

// quote makes a word of any text, for each of the shells.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// bracket escapes what _arguments of zsh would read in the text of a flag.
func bracket(text string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}
