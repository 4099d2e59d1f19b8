package doctor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
)

// Options are the flags of the command.
type Options struct {
	Server       server.Options
	Reload       time.Duration
	ReplicaReads bool
	// Kafka says where the topics are, and Group names the group that reads them. Without Topics,
	// doctor checks those for which the group has committed offsets.
	Kafka       broker.Options
	Group       string
	Topics      []string
	Window      time.Duration
	KafkaConfig string
	Schema      string
	Tables      []string
	JSON        bool
}

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "doctor", Short: "Find what loses claims, records or effects in a server or a client",
		Long: `Looks at a server and at the way to it, and names what loses claims, records or effects: how bad
it is, what was seen, what follows, and what to do. It changes nothing. It needs INFO of Redis, the
right to read of a database, and DESCRIBE and DESCRIBE_CONFIGS of Kafka's cluster, topics and group.
A Redis or a database, Kafka, and a file can be looked at together.

Run it where the program runs, with the program's URL or DSN: doctor also looks at what these say
of the driver (TLS, simple protocol, clientFoundRows, _txlock, pragmas). Brokers do not know how
their clients commit: give --kafka-config the file of the program's client.

critical findings lose claims or records, take different keys for the same, or cannot work;
warnings may lose some, or show them, when something else fails; notes lose nothing.`,
		Example: `onceward doctor --redis redis://127.0.0.1:6379
onceward doctor --sql postgres://user@host/db --table onceward_claims
onceward doctor --brokers 127.0.0.1:9092 --group billing --window 7d
onceward doctor --kafka-config consumer.properties`,
		Exits: map[int]string{
			cli.Done: "nothing was found, or notes alone", cli.No: "warnings, and nothing critical",
			cli.Usage:    "wrong usage, or a server that could not be asked",
			cli.Critical: "something critical",
		},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Server.Flags(f)
	f.DurationVar(&o.Reload, "cluster-reload", 0,
		"ClusterStateReloadInterval of the program (default go-redis's own, one minute)")
	f.BoolVar(&o.ReplicaReads, "replica-reads", false,
		"the program sets ReadOnly, RouteByLatency or RouteRandomly")
	o.Kafka.Flags(f)
	f.StringVar(&o.Group, "group", "", "consumer `group` whose offsets are looked at")
	f.StringSliceVar(&o.Topics, "topics", nil,
		"`names` of topics, with commas between (default those in which --group has committed)")
	f.DurationVar(&o.Window, "window", 0, "window of the Deduper, to compare with what Kafka keeps")
	f.StringVar(&o.KafkaConfig, "kafka-config", "",
		"`file` with the settings of a Kafka client: Java properties, names of librdkafka, KEY=value, or JSON")
	f.StringVar(&o.Schema, "schema", "", "`schema` of the tables (default the connection's own)")
	f.StringSliceVar(&o.Tables, "table", nil,
		"`names` of tables whose keys tell duplicates, with commas between: onceward_marks, onceward_claims, your own")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	for _, what := range []string{"redis", "sql", "kafka-config"} {
		f.Instead(what, broker.Names...)
	}
	for _, what := range []string{"brokers", "kafka-config"} {
		f.Instead(what, server.Names...)
	}
}

// check finds the first invalid flag.
func (o *Options) check() error {
	inServer, inKafka := o.Server.Redis != "" || o.Server.SQL != "", o.Kafka.Given()
	if !inServer && !inKafka && o.KafkaConfig == "" {
		return errors.New("--redis, --sql, --brokers or --kafka-config is missing")
	}
	if inServer || o.Server.Cluster {
		if err := o.Server.Check(); err != nil {
			return err
		}
	}
	switch {
	case o.Server.SQL == "" && (o.Tables != nil || o.Schema != ""):
		return errors.New("--table and --schema need --sql")
	case !o.Server.Cluster && (o.Reload != 0 || o.ReplicaReads):
		return errors.New("--cluster-reload and --replica-reads need --cluster")
	case o.Reload < 0:
		return fmt.Errorf("--cluster-reload is %v; it must not be negative", o.Reload)
	case inKafka:
		return o.checkKafka()
	case o.Group != "" || o.Topics != nil || o.Window != 0:
		return errors.New("--group, --topics and --window need --brokers")
	}
	return nil
}

func (o *Options) checkKafka() error {
	if err := o.Kafka.Check(); err != nil {
		return err
	}
	switch {
	case o.Window <= 0:
		return errors.New("--window is missing, or not positive: how long does the Deduper remember that a key is done?")
	case o.Topics == nil && o.Group == "":
		return errors.New("--topics or --group is missing")
	case slices.Contains(o.Topics, ""):
		return errors.New("--topics has an empty name")
	}
	return nil
}
