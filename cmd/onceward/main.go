// Command onceward is the command line of Onceward.
//
//	onceward demo [flags]     duplicates and crashes go in; the effects are counted
//	onceward replay [flags]   dead letters go back to their topics, under the ids they had
//	onceward plan [flags]     memory, rows and odds for a rate and a window
//	onceward help             what there is
//
// In the demo, with record and effect in one SQL transaction each effect comes out once; with Redis
// nothing is lost, and every double is traced to the kill that caused it.
//
// Exit codes: 0 success, 1 what the command says of itself, 2 wrong usage, 130
// interrupted.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/onceward/onceward/cmd/internal/demo"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/plan"
	"github.com/onceward/onceward/cmd/internal/replay"
)

const help = `Usage: onceward <command> [flags]

Commands:
  demo    duplicates and crashes go in; the effects are counted (demo -h: its flags)
  replay  dead letters go back to their topics, under the ids they had (replay -h: its flags)
  plan    memory, rows and odds for a rate and a window (plan -h: its flags)
  help    this text

In the demo, with record and effect in one SQL transaction each effect comes out once; with Redis
nothing is lost, and every double is traced to the kill that caused it.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(errOut, help)
		return 2
	}
	switch args[0] {
	case "demo":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return demo.Main(ctx, args[1:], out, errOut)
	case "replay":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return replay.Main(ctx, args[1:], out, errOut)
	case "plan":
		return plan.Main(args[1:], out, errOut)
	case demo.WorkerCommand:
		return worker.Main(os.Stdin, out, errOut)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, help)
		return 0
	}
	fmt.Fprintf(errOut, "onceward: unknown command %q\n\n%s", args[0], help)
	return 2
}
