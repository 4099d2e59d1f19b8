// Package serve shows package console to who has started it: the command onceward console.
package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/onceward/onceward/cmd/internal/flags"
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
}

// leastPassword is how long a password must be, in bytes.
const leastPassword = 12

const usage = `Usage: onceward console (-redis URL | -sql DSN) [flags]

Serves pages on this machine about what the store knows: what is in flight and uncertain, and
any key, with -changes also resolve and forget. It prints an address that is good for one
browser. Rates, causes and ages of duplicates are not there: they are events, which only the
programs see that do the work; mount the package console in one of them for these.

On an address that is not of this machine it serves only with -remote, and asks for the
password of -password-env; give -tls-cert and -tls-key, or both go in clear.

Exit code: 130 it was interrupted, as it ends; 2 wrong flags, a server that cannot be reached
or refuses, or an address that cannot be listened on.

Flags:
`

// ParseOptions reads the flags. flag.ErrHelp is returned after usage has been written to out; any
// other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var passwordEnv string
	f := flag.NewFlagSet("console", flag.ContinueOnError)
	o.Flags(f)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "`host:port` to serve on; port 0 is a free one")
	f.BoolVar(&o.Remote, "remote", false, "serve other machines, too; needs -password-env")
	f.StringVar(&passwordEnv, "password-env", "",
		"`variable` of the environment that holds the password to ask browsers for, of 12 bytes at least")
	f.StringVar(&o.Cert, "tls-cert", "", "`file` with the certificates of this server")
	f.StringVar(&o.Key, "tls-key", "", "`file` with their key")
	f.BoolVar(&o.Changes, "changes", false, "allow to resolve uncertain keys and to forget keys")
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` that a search begins with")
	f.DurationVar(&o.Window, "window", 0,
		"window that an uncertain key is remembered for as done; known of the layout compact")
	f.DurationVar(&o.Hold, "hold", console.DefaultHold,
		"hold of the Deduper: how long an owner from before can write nothing")
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	if passwordEnv != "" {
		if o.Password = os.Getenv(passwordEnv); o.Password == "" {
			return o, fmt.Errorf("-password-env: the environment has no %s", passwordEnv)
		}
	}
	return o, o.check()
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	if err := o.Check(); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("-listen is %q, and not host:port", o.Listen)
	case !loopback.Is(host) && !o.Remote:
		return fmt.Errorf("-listen: %q is not of this machine alone: -remote allows it", host)
	case !loopback.Is(host) && o.Password == "":
		return errors.New("-remote needs -password-env: others can reach this address")
	case o.Password != "" && len(o.Password) < leastPassword:
		return fmt.Errorf("-password-env: the password has %d bytes, at least %d are needed",
			len(o.Password), leastPassword)
	case (o.Cert == "") != (o.Key == ""):
		return errors.New("-tls-cert and -tls-key need each other")
	case o.Window < 0:
		return fmt.Errorf("-window is %v; it must not be negative", o.Window)
	case o.Hold < 0:
		return fmt.Errorf("-hold is %v; it must not be negative", o.Hold)
	}
	return nil
}
