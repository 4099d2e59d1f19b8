// Command onceward is the command line of Onceward; "onceward help" lists its commands, and
// docs/reference/command describes each of them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/onceward/onceward/cmd/internal/audit"
	"github.com/onceward/onceward/cmd/internal/bench"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo"
	"github.com/onceward/onceward/cmd/internal/doctor"
	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/cmd/internal/migrate"
	"github.com/onceward/onceward/cmd/internal/plan"
	"github.com/onceward/onceward/cmd/internal/prove"
	"github.com/onceward/onceward/cmd/internal/proxy"
	"github.com/onceward/onceward/cmd/internal/replay"
	"github.com/onceward/onceward/cmd/internal/serve"
)

const long = `onceward shows what a store knows of keys, settles keys that a person has to settle, and finds
what loses claims or effects.

Many flags take their value also from the environment (ONCEWARD_REDIS for --redis) and from a file
of lines such as "redis = redis://127.0.0.1:6379": $ONCEWARD_CONFIG, or onceward/config in
$XDG_CONFIG_HOME or ~/.config. The command line is stronger than the environment, and the
environment is stronger than the file. Durations are written as 30s, 10m, 36h or 7d. NO_COLOR=1
turns colors off, and COLUMNS=80 breaks lines as a terminal of that width does.`

func main() { os.Exit(run(os.Args[1:], cli.Standard())) }

// root is the command line.
func root(s *cli.Streams) *cobra.Command {
	commands := []*cli.Command{
		audit.Command(), bench.Command(), serve.Command(), demo.Command(), demo.WorkerProcess(),
		doctor.Command(), migrate.Command(), plan.Command(), prove.Command(), proxy.Command(),
		replay.Command(), versionCommand(),
	}
	made := cli.Root(s, long, append(commands, keys.Commands()...)...)
	made.Version = version().String()
	made.SetVersionTemplate("{{.Version}}\n")
	return made
}

// run runs a command line. Its context ends with the first SIGINT or SIGTERM.
func run(args []string, s *cli.Streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() { endWithNext(s.Err) })()
	return cli.Execute(ctx, s, root(s), args)
}

// endWithNext ends the process at the second signal. After the first signal the command removes
// what it has made, but it may wait for a server that does not answer. Restoring the default effect
// of signals would not work if the process was started with signals ignored, as shells do in the
// background.
func endWithNext(errOut io.Writer) {
	next := make(chan os.Signal, 1)
	signal.Notify(next, os.Interrupt, syscall.SIGTERM)
	<-next
	fmt.Fprintln(errOut, "onceward: ended at once; nothing more is removed")
	os.Exit(cli.Interrupted)
}
