// Package serve shows package console to who has started it: the command onceward console.
package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/cmd/internal/loopback"
	"github.com/onceward/onceward/console"
)

// Options are the flags of the command.
type Options struct {
	keys.Place
	// Listen is host:port; Remote allows a host that is not of this machine.
	Listen string
	Remote bool
	// Password is asked for in place of a token in the URL, where it is not empty.
	Password string
	// Cert and Key are the files of TLS.
	Cert, Key string
	// Changes allows them.
	Changes bool
	// Namespace, Window and Hold are those of the Deduper.
	Namespace    string
	Window, Hold time.Duration

	passwordEnv string
}

// leastPassword is how long a password must be, in bytes.
const leastPassword = 12

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "console", Short: "Serve pages about what a store knows, for a browser on this machine",
		Long: `Serves pages on this machine about what the store knows: the keys in flight and the uncertain ones,
and any key; with --changes also resolve and forget. It prints an address that is good for one
browser. Rates, causes and ages of duplicates are not there: they are events, which only the
programs see that do the work. Mount the package console in one of them to see these.

On an address that other machines reach it serves only with --remote, and asks for the password of
--password-env. Give --tls-cert and --tls-key, or both go in clear. It serves until it is interrupted.`,
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
	f.BoolVar(&o.Remote, "remote", false, "serve other machines, too; needs --password-env")
	f.StringVar(&o.passwordEnv, "password-env", "",
		"`variable` of the environment that holds the password to ask browsers for, of 12 bytes at least")
	f.StringVar(&o.Cert, "tls-cert", "", "`file` with the certificates of this server")
	f.StringVar(&o.Key, "tls-key", "", "`file` with their key")
	f.BoolVar(&o.Changes, "changes", false, "allow to resolve uncertain keys and to forget keys")
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` that a search begins with")
	f.DurationVar(&o.Window, "window", 0,
		"for how long a resolved key is remembered as done; the layout compact knows it")
	f.DurationVar(&o.Hold, "hold", console.DefaultHold,
		"hold of the Deduper: for how long an earlier owner can write nothing")
	f.Setting("namespace", "window", "hold")
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.passwordEnv != "" {
		if o.Password = os.Getenv(o.passwordEnv); o.Password == "" {
			return fmt.Errorf("--password-env: the environment has no %s", o.passwordEnv)
		}
	}
	host, _, err := net.SplitHostPort(o.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen is %q, and not host:port", o.Listen)
	case !loopback.Is(host) && !o.Remote:
		return fmt.Errorf("--listen: %q is not of this machine alone: --remote allows it", host)
	case !loopback.Is(host) && o.Password == "":
		return errors.New("--remote needs --password-env: others can reach this address")
	case o.Password != "" && len(o.Password) < leastPassword:
		return fmt.Errorf("--password-env: the password has %d bytes, at least %d are needed",
			len(o.Password), leastPassword)
	case (o.Cert == "") != (o.Key == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	case o.Window < 0:
		return fmt.Errorf("--window is %v; it must not be negative", o.Window)
	case o.Hold < 0:
		return fmt.Errorf("--hold is %v; it must not be negative", o.Hold)
	}
	return nil
}
