// Package serve shows package console to the user who started it: the command onceward console.
package serve

import (
	"fmt"
	"net"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/cmd/internal/loopback"
	"github.com/onceward/onceward/console"
)

// Options are the flags of the command.
type Options struct {
	keys.Location
	Listen       string
	Changes      bool
	Namespace    string
	Window, Hold time.Duration
}

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "console", Short: "Serve pages about what a store knows, for a browser on this machine",
		Long: `Serves pages on this machine about what the store knows: the keys in flight and the uncertain ones,
and any key; with --changes also resolve and forget. It prints an address that is good for one
browser. Rates, causes and ages of duplicates are not there: they are events, which only the
programs see that do the work. Mount the package console in one of them to see these.

It serves until it is interrupted. Others see it through a tunnel (ssh -L), or in a program that
mounts the package behind its own sign-in.`,
		Example: "onceward console --redis redis://127.0.0.1:6379 --namespace shop",
		Exits: map[int]string{cli.Done: "help was asked for",
			cli.Usage: "wrong usage, a server that cannot be reached or refuses, or an address that is taken",
		},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Flags(f)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "`host:port` to serve on; port 0 is a free one")
	f.BoolVar(&o.Changes, "changes", false, "allow to resolve uncertain keys and to forget keys")
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` that a search begins with")
	f.DurationVar(&o.Window, "window", 0,
		"for how long a resolved key is remembered as done; the layout compact knows it")
	f.DurationVar(&o.Hold, "hold", console.DefaultHold,
		"hold of the Deduper: for how long an earlier owner can write nothing")
	f.Setting("namespace", "window", "hold")
}

// check finds the first invalid flag.
func (o *Options) check() error {
	if err := o.Check(); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen is %q, and not host:port", o.Listen)
	case !loopback.Is(host):
		return fmt.Errorf("--listen: %q is not of this machine alone: use a tunnel, or mount the package console", host)
	case o.Window < 0:
		return fmt.Errorf("--window is %v; it must not be negative", o.Window)
	case o.Hold < 0:
		return fmt.Errorf("--hold is %v; it must not be negative", o.Hold)
	}
	return nil
}
