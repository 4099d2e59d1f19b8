package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/onceward/onceward/cmd/internal/bench"
	"github.com/onceward/onceward/cmd/internal/completion"
	"github.com/onceward/onceward/cmd/internal/demo"
	"github.com/onceward/onceward/cmd/internal/doctor"
	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/cmd/internal/migrate"
	"github.com/onceward/onceward/cmd/internal/plan"
	"github.com/onceward/onceward/cmd/internal/replay"
	"github.com/onceward/onceward/cmd/internal/serve"
	"github.com/onceward/onceward/cmd/internal/watch"
)

// command is one of the command line. Help and completion are made from these, and the flags from
// what a command says to -h.
type command struct {
	name, text string
	run        func(ctx context.Context, args []string, out, errOut io.Writer) int
	operands   []string
}

// commands are all of them, in the order of help.
func commands() []command {
	of := func(name string) func(context.Context, []string, io.Writer, io.Writer) int {
		return func(ctx context.Context, args []string, out, errOut io.Writer) int {
			return keys.Main(ctx, name, args, os.Stdin, out, errOut)
		}
	}
	return []command{
		{"demo", "duplicates and crashes go in; the effects are counted", demo.Main, nil},
		{"replay", "dead letters go back to their topics, under the ids they had",
			replay.Main, nil},
		{"plan", "memory, rows and odds for a rate and a window",
			func(_ context.Context, args []string, out, errOut io.Writer) int {
				return plan.Main(args, out, errOut)
			}, nil},
		{"bench", "messages a second through a Redis or a database of yours, beside its limit",
			func(ctx context.Context, args []string, out, errOut io.Writer) int {
				defer context.AfterFunc(ctx, func() { endWithNext(errOut) })()
				return bench.Main(ctx, args, os.Stdin, out, errOut)
			}, nil},
		{"inspect", "what a store knows of a key", of("inspect"), nil},
		{"inflight", "the keys in flight", of("inflight"), nil},
		{"uncertain", "the keys of which somebody has to find out whether their effect has happened", of("uncertain"), nil},
		{"resolve", "says how an uncertain key has ended", of("resolve"), nil},
		{"forget", "makes a key claimable again", of("forget"), nil},
		{"console", "pages about what a store knows, for a browser on this machine",
			serve.Main, nil},
		{"migrate", "tables of this library in a database: their version, and to the newest",
			func(ctx context.Context, args []string, out, errOut io.Writer) int {
				return migrate.Main(ctx, args, os.Stdin, out, errOut)
			}, nil},
		{"doctor", "what loses claims, records or effects in this Redis, database or Kafka",
			doctor.Main, nil},
		{"watch", "live rates: claims by outcome, duplicates by cause and age, of processes and of a server", watch.Main, nil},
		{"completion", "a script by which bash, zsh or fish completes commands and flags",
			complete, completion.Shells},
		{"version", "which build this is: version, commit and Go", version, nil},
		{"help", "this text", help, nil},
	}
}

// complete writes the script of a shell.
func complete(ctx context.Context, args []string, out, errOut io.Writer) int {
	var all []completion.Command
	for _, c := range commands() {
		all = append(all, completion.Command{Name: c.name, Text: c.text, Operands: c.operands,
			Help: func(out io.Writer) {
				c.run(ctx, []string{"-h"}, out, io.Discard)
			}})
	}
	return completion.Main(args, all, out, errOut)
}

// interrupted runs a command with a context that ends with the first signal to end.
func (c *command) interrupted(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.run(ctx, args, out, errOut)
}

// endWithNext ends the process with the next signal to end: the first has the command remove what
// it has made, and its server may not answer. Where the process was started with signals ignored,
// as shells do in the background, to give signals their own effect back would not do.
func endWithNext(errOut io.Writer) {
	next := make(chan os.Signal, 1)
	signal.Notify(next, os.Interrupt, syscall.SIGTERM)
	<-next
	fmt.Fprintln(errOut, "onceward: ended at once; nothing more is removed")
	os.Exit(bench.ExitInterrupted)
}
