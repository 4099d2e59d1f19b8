package doctor

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/flags"
	"github.com/onceward/onceward/cmd/internal/server"
)

// Options are the flags of the command.
type Options struct {
	Server server.Options
	// Reload is the program's ClusterStateReloadInterval; zero is go-redis's default.
	Reload time.Duration
	// ReplicaReads says that the program reads from replicas.
	ReplicaReads bool
	// Schema and Tables are what to look at in a database.
	Schema string
	Tables []string
	// JSON writes for programs.
	JSON bool
}

const usage = `Usage: onceward doctor -redis URL [flags]
       onceward doctor -sql DSN [-table NAME,...] [flags]

Looks at the server and at the way to it, and names what loses claims, records or effects:
how bad it is, what was seen, what follows, and what to do. It changes nothing; it needs INFO
of Redis, and the right to read of a database.

Run it where the program runs, with the program's URL or DSN: what these say of the driver
(TLS, simple protocol, clientFoundRows, _txlock, pragmas) is looked at, too.

fatal    will lose claims or records, takes different keys for the same, or cannot work
warning  may lose some, or show them, when something else fails
note     worth knowing, and loses nothing

Exit code: 0 nothing, or notes alone; 1 warnings, none fatal; 3 something fatal; 2 wrong
flags, or a server that could not be asked; 130 interrupted.

Flags:
`

// ParseOptions reads the flags. flag.ErrHelp is returned after usage has been written to out; any
// other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var tables string
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	o.Server.Flags(f)
	f.DurationVar(&o.Reload, "cluster-reload", 0, "ClusterStateReloadInterval of the program, as in 1s (default go-redis's own, one minute)")
	f.BoolVar(&o.ReplicaReads, "replica-reads", false, "the program sets ReadOnly, RouteByLatency or RouteRandomly")
	f.StringVar(&o.Schema, "schema", "", "`schema` of the tables (default the connection's own)")
	f.StringVar(&tables, "table", "", "`names` of tables whose keys tell duplicates, with commas between: onceward_marks, onceward_claims, your own")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	if tables != "" {
		o.Tables = strings.Split(tables, ",")
	}
	return o, o.check()
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	if err := o.Server.Check(); err != nil {
		return err
	}
	inRedis := o.Server.Redis != ""
	switch {
	case inRedis && (o.Tables != nil || o.Schema != ""):
		return errors.New("-table and -schema need -sql")
	case !o.Server.Cluster && (o.Reload != 0 || o.ReplicaReads):
		return errors.New("-cluster-reload and -replica-reads need -redis-cluster")
	case o.Reload < 0:
		return fmt.Errorf("-cluster-reload is %v; it must not be negative", o.Reload)
	}
	return nil
}
