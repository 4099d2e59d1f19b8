package doctor

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
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
	// Kafka is where topics are, Group who reads them; without Topics those that it has committed
	// in.
	Kafka  broker.Options
	Group  string
	Topics []string
	// Window of the Deduper.
	Window time.Duration
	// KafkaConfig is a file with the settings of a Kafka client.
	KafkaConfig string
	// Schema and Tables are what to look at in a database.
	Schema string
	Tables []string
	// JSON writes for programs.
	JSON bool
}

const usage = `Usage: onceward doctor -redis URL [flags]
       onceward doctor -sql DSN [-table NAME,...] [flags]
       onceward doctor -brokers HOST:PORT,... -window DURATION (-topics NAME,... | -group NAME) [flags]
       onceward doctor -kafka-config FILE

Looks at the server and at the way to it, and names what loses claims, records or effects:
how bad it is, what was seen, what follows, and what to do. It changes nothing; it needs INFO
of Redis, the right to read of a database, and DESCRIBE and DESCRIBE_CONFIGS of Kafka's cluster,
topics and group. One of Redis and databases, Kafka and a file can be looked at together.

Run it where the program runs, with the program's URL or DSN: what these say of the driver
(TLS, simple protocol, clientFoundRows, _txlock, pragmas) is looked at, too. Brokers do not know
how their clients commit: give -kafka-config the file of the program's client.

critical will lose claims or records, takes different keys for the same, or cannot work
warning  may lose some, or show them, when something else fails
note     worth knowing, and loses nothing

Exit code: 0 nothing, or notes alone; 1 warnings, none critical; 3 something critical; 2 wrong
flags, or a server that could not be asked; 130 interrupted.

Flags:
`

// ParseOptions reads the flags. flag.ErrHelp is returned after usage has been written to out; any
// other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var tables, topics string
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	o.Server.Flags(f)
	f.DurationVar(&o.Reload, "cluster-reload", 0,
		"ClusterStateReloadInterval of the program, as in 1s (default go-redis's own, one minute)")
	f.BoolVar(&o.ReplicaReads, "replica-reads", false,
		"the program sets ReadOnly, RouteByLatency or RouteRandomly")
	o.Kafka.Flags(f)
	f.StringVar(&o.Group, "group", "", "consumer `group` whose offsets are looked at")
	f.StringVar(&topics, "topics", "",
		"`names` of topics, with commas between (default those in which -group has committed)")
	f.DurationVar(&o.Window, "window", 0,
		"window of the Deduper, as in 72h, to compare with what Kafka keeps")
	f.StringVar(&o.KafkaConfig, "kafka-config", "",
		"`file` with the settings of a Kafka client: Java properties, librdkafka's names, KEY=value, or JSON")
	f.StringVar(&o.Schema, "schema", "", "`schema` of the tables (default the connection's own)")
	f.StringVar(&tables, "table", "",
		"`names` of tables whose keys tell duplicates, with commas between: onceward_marks, onceward_claims, your own")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	if tables != "" {
		o.Tables = strings.Split(tables, ",")
	}
	if topics != "" {
		o.Topics = strings.Split(topics, ",")
	}
	return o, o.check()
}

// inServer and inKafka report what there is to look at.
func (o *Options) inServer() bool { return o.Server.Redis != "" || o.Server.SQL != "" }
func (o *Options) inKafka() bool  { return o.Kafka.Given() }

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	if !o.inServer() && !o.inKafka() && o.KafkaConfig == "" {
		return errors.New("-redis, -sql, -brokers or -kafka-config is missing")
	}
	if err := o.checkServer(); err != nil {
		return err
	}
	return o.checkKafka()
}

func (o *Options) checkServer() error {
	if o.inServer() || o.Server.Cluster {
		if err := o.Server.Check(); err != nil {
			return err
		}
	}
	switch {
	case o.Server.SQL == "" && (o.Tables != nil || o.Schema != ""):
		return errors.New("-table and -schema need -sql")
	case !o.Server.Cluster && (o.Reload != 0 || o.ReplicaReads):
		return errors.New("-cluster-reload and -replica-reads need -redis-cluster")
	case o.Reload < 0:
		return fmt.Errorf("-cluster-reload is %v; it must not be negative", o.Reload)
	}
	return nil
}

func (o *Options) checkKafka() error {
	if !o.inKafka() {
		if o.Group != "" || o.Topics != nil || o.Window != 0 {
			return errors.New("-group, -topics and -window need -brokers")
		}
		return nil
	}
	if err := o.Kafka.Check(); err != nil {
		return err
	}
	switch {
	case o.Window <= 0:
		return errors.New("-window is missing, or not positive: how long does the Deduper remember that a key is done?")
	case o.Topics == nil && o.Group == "":
		return errors.New("-topics or -group is missing")
	case slices.Contains(o.Topics, ""):
		return errors.New("-topics has an empty name")
	}
	return nil
}
