// Command onceward is the command line of Onceward.
//
//	onceward demo [flags]     duplicates and crashes go in; the effects are counted
//	onceward replay [flags]   dead letters go back to their topics, under the ids they had
//	onceward plan [flags]     memory, rows and odds for a rate and a window
//	onceward inspect KEY      what a store knows of a key
//	onceward inflight         the keys in flight
//	onceward uncertain        the keys of which somebody has to find out
//	onceward resolve KEY      says how an uncertain key has ended
//	onceward forget KEY       makes a key claimable again
//	onceward doctor           what loses claims, records or effects here
//	onceward help             what there is
//
// In the demo, with record and effect in one SQL transaction each effect comes out once; with Redis
// nothing is lost, and every double is traced to the kill that caused it.
//
// Exit codes: 0 success, 1 what the command says of itself (see its -h): for replay that letters
// are left, for inspect that there is no record, for resolve and forget that the key is left as it
// is, for doctor warnings; 3 something fatal that doctor has found; 2 wrong usage, or a server that
// cannot be reached or refuses; 130 interrupted.
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
	"github.com/onceward/onceward/cmd/internal/doctor"
	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/cmd/internal/plan"
	"github.com/onceward/onceward/cmd/internal/replay"
)

const help = `Usage: onceward <command> [flags]

Commands:
  demo       duplicates and crashes go in; the effects are counted
  replay     dead letters go back to their topics, under the ids they had
  plan       memory, rows and odds for a rate and a window
  inspect    what a store knows of a key
  inflight   the keys in flight
  uncertain  the keys of which somebody has to find out whether their effect has happened
  resolve    says how an uncertain key has ended
  forget     makes a key claimable again
  doctor     what loses claims, records or effects in this Redis, database or Kafka
  help       this text

"onceward COMMAND -h" has the flags and the exit codes of a command. All have 0 for success, 2 for
wrong usage or a server that cannot be used, and 130 when they are interrupted. docs/command.md
has examples.

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
	case "doctor":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return doctor.Main(ctx, args[1:], out, errOut)
	case "inspect", "inflight", "uncertain", "resolve", "forget":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return keys.Main(ctx, args[0], args[1:], os.Stdin, out, errOut)
	case demo.WorkerCommand:
		return worker.Main(os.Stdin, out, errOut)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, help)
		return 0
	}
	fmt.Fprintf(errOut, "onceward: unknown command %q\n\n%s", args[0], help)
	return 2
}
