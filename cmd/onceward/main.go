// Command onceward is the command line of Onceward.
//
//	onceward demo [flags]     duplicates and crashes go in; the effects are counted
//	onceward replay [flags]   dead letters go back to their topics, under the ids they had
//	onceward plan [flags]     memory, rows and odds for a rate and a window
//	onceward bench [flags]    messages a second through a server of yours, beside its limit
//	onceward inspect KEY      what a store knows of a key
//	onceward inflight         the keys in flight
//	onceward uncertain        the keys of which somebody has to find out
//	onceward resolve KEY      says how an uncertain key has ended
//	onceward forget KEY       makes a key claimable again
//	onceward console          pages about a store, for a browser on this machine
//	onceward migrate          tables of this library: their version, and to the newest
//	onceward doctor           what loses claims, records or effects here
//	onceward watch [flags]    live rates, of processes and of a server
//	onceward completion SHELL what bash, zsh or fish needs to complete commands and flags
//	onceward version          which build this is
//	onceward help             what there is
//
// In the demo, with record and effect in one SQL transaction each effect comes out once; with Redis
// nothing is lost, and every double is traced to the kill that caused it.
//
// Exit codes: 0 success, 1 what the command says of itself (see its -h): for replay that letters
// are left, for inspect that there is no record, for resolve and forget that the key is left as it
// is, for migrate that something is to be done, for bench that messages have failed, for doctor
// warnings; 3 something critical that doctor has found; 2 wrong usage, or a server that cannot be
// reached or refuses; 130 interrupted.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/onceward/onceward/cmd/internal/demo"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

const (
	head = "Usage: onceward <command> [flags]\n\nCommands:\n"
	tail = `
"onceward COMMAND -h" has the flags and the exit codes of a command. All have 0 for success, 2 for
wrong usage or a server that cannot be used, and 130 when they are interrupted. docs/command.md
has examples.

In the demo, with record and effect in one SQL transaction each effect comes out once; with Redis
nothing is lost, and every double is traced to the kill that caused it.
`
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// help writes what there is.
func help(_ context.Context, _ []string, out, _ io.Writer) int {
	fmt.Fprint(out, head)
	for _, c := range commands() {
		fmt.Fprintf(out, "  %-10s %s\n", c.name, c.text)
	}
	fmt.Fprint(out, tail)
	return 0
}

func run(args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		help(context.Background(), nil, errOut, nil)
		return 2
	}
	name := args[0]
	switch name {
	case demo.WorkerCommand:
		return worker.Main(os.Stdin, out, errOut)
	case "-h", "-help", "--help":
		name = "help"
	case "-version", "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.interrupted(args[1:], out, errOut)
		}
	}
	fmt.Fprintf(errOut, "onceward: unknown command %q; onceward help lists them\n", name)
	return 2
}
