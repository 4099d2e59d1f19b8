package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main is what the main function of every benchmark does: run until it ends, or until the terminal
// interrupts it, and exit with a status that says which. It does not return.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintf(os.Stderr, "%s: interrupted, nothing was written\n", name)
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}
