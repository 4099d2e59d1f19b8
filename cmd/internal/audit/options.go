package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
)

// Options are the flags of the command. One of Topic, File and Table is set.
type Options struct {
	Kafka             broker.Options
	Topic             string
	Since             time.Duration // only for a topic; 0: all of it
	Server            server.Options
	Table             string
	File              string // "-" is standard input
	ID, Time, Payload string
	Max, IDs          int
	State, HTML       string
	JSON              bool

	id         kafkaadapter.IDFunc
	expression string
	pattern    *regexp.Regexp // for the lines of File; nil: lines are JSON
	stdin      io.Reader
}

const (
	// DefaultMax is Options.Max unless --max says otherwise.
	DefaultMax = 10_000_000
	// DefaultIDs is Options.IDs unless --ids says otherwise.
	DefaultIDs = 1_000_000

	none     = "none"
	openTime = 15 * time.Second
)

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "audit", Short: "Count the duplicates in a topic, a file of logs or a table",
		Long: `Counts the duplicates in a Kafka topic, a file of logs or a table: their share, causes and ages,
ids that are bad keys, and the window and memory that this traffic needs. It reads, and changes
nothing: it joins no consumer group and commits nothing.

--id says where the id of a message stands. In a topic: header:NAME, key, json:PATH in the value, or
cloudevents; without it the headers message-id and idempotency-key, then CloudEvents. In a file: the
path of a field in lines of JSON, such as request.id, or a named group of --pattern, such as
'(?P<id>\S+)', for lines that are not JSON. In a table: a column.

Equal ids with different payloads are not duplicates, but ids that are bad keys. Of a topic the whole
value is the payload, of a file or a table nothing, unless --payload says otherwise.

Memory is bounded: with more ids than --ids it continues with every second one, then every fourth,
and says so; shares stay right on average.`,
		Example: "onceward audit --brokers localhost:9092 --topic orders\n" +
			"onceward audit --file log.ndjson --id request.id --time ts --payload body --html report.html\n" +
			"onceward audit --sql env:DATABASE_URL --table events --id event_id --time created_at",
		Exits: map[int]string{
			cli.Done:  "everything was read and reported",
			cli.No:    "less than everything was read, or the report cannot be written",
			cli.Usage: "wrong usage, or a source that cannot be read",
			cli.Interrupted: "interrupted; the report is of the part that was read, and with --state the next run " +
				"continues there",
		},
		Flags: o.flags,
		Check: o.check,
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Kafka.Flags(f)
	f.StringVar(&o.Topic, "topic", "", "`name` of the topic")
	f.DurationVar(&o.Since, "since", 0,
		"how long before now the topic is read from (default all of it)")
	f.StringVar(&o.File, "file", "",
		"`file` with a line for each message, or - for standard input")
	f.StringVar(&o.expression, "pattern", "",
		"`regexp` with the named groups that --id, --time and --payload name (default lines are JSON)")
	o.Server.SQLFlags(f)
	f.StringVar(&o.Table, "table", "", "`name` of the table or view, as in schema.name")
	f.StringVar(&o.ID, "id", "", "`where` the id stands")
	f.StringVar(&o.Time, "time", "", "`where` the time stands; a topic has timestamps")
	f.StringVar(&o.Payload, "payload", "",
		"`where` the payload stands; of a topic a path in its JSON, or none")
	f.IntVar(&o.Max, "max", DefaultMax, "most `messages` to read")
	f.IntVar(&o.IDs, "ids", DefaultIDs, "most `ids` to keep, some 300 bytes each")
	f.StringVar(&o.State, "state", "",
		"`file` to continue from, of a topic or a file, and to write at the end")
	f.StringVar(&o.HTML, "html", "", "`file` for a page with charts")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

// check finds the first invalid flag.
func (o *Options) check([]string) error {
	sources := slices.DeleteFunc([]string{o.Topic, o.File, o.Table},
		func(source string) bool { return source == "" })
	switch {
	case len(sources) != 1:
		return errors.New("one of --topic, --file and --table is wanted: what is to be read")
	case o.Max < 1:
		return fmt.Errorf("--max is %d; at least 1 message is read", o.Max)
	case o.IDs < 1000:
		return fmt.Errorf("--ids is %d; at least 1000 are kept", o.IDs)
	case o.Since < 0:
		return fmt.Errorf("--since is %v; it is a time before now", o.Since)
	case o.Topic == "" && o.Since != 0:
		return errors.New("--since needs --topic")
	case o.File == "" && o.expression != "":
		return errors.New("--pattern needs --file")
	case o.State != "" && (o.Table != "" || o.File == "-"):
		return errors.New(
			"--state is for a topic or a file: a table, or standard input, is read in one go")
	case o.Topic == "" && o.ID == "":
		return errors.New("--id is missing: where the id stands")
	}
	for flag, path := range map[string]string{"state": o.State, "html": o.HTML} {
		if err := writable(path); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	switch {
	case o.Topic != "":
		return o.checkTopic()
	case o.File != "":
		return o.checkPattern()
	}
	return o.checkTable()
}

// writable tries whether a file can be written: reading may take an hour.
func writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"); err == nil {
			defer os.Remove(f.Name()) //nolint:errcheck // an empty file that stays is harmless
		}
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func (o *Options) checkTopic() (err error) {
	if o.Time != "" {
		return errors.New("--time is for a file or a table: messages of Kafka have a timestamp")
	}
	if o.id, err = idFunc(o.ID); err != nil {
		return err
	}
	return o.Kafka.Check()
}

// idFunc returns how --id finds the id of a Kafka message.
func idFunc(where string) (kafkaadapter.IDFunc, error) {
	kind, name, _ := strings.Cut(where, ":")
	switch {
	case where == "":
		return kafkaadapter.DefaultID(), nil
	case where == "key":
		return kafkaadapter.KafkaKey(), nil
	case where == "cloudevents":
		return kafkaadapter.CloudEvents(), nil
	case kind == "header" && name != "":
		return kafkaadapter.FirstOf(kafkaadapter.Replayed(), kafkaadapter.FromHeader(name)), nil
	case kind == "json" && name != "":
		return func(m *kafkaadapter.Message) (string, bool) { return pick(m.Value, name) }, nil
	}
	return nil, fmt.Errorf("--id is %q; header:NAME, key, json:PATH and cloudevents are known", where)
}

func (o *Options) checkPattern() (err error) {
	if o.expression == "" {
		return nil
	}
	if o.pattern, err = regexp.Compile(o.expression); err != nil {
		return fmt.Errorf("--pattern: %w", err)
	}
	for flag, group := range map[string]string{"id": o.ID, "time": o.Time, "payload": o.Payload} {
		if group != "" && group != none && o.pattern.SubexpIndex(group) < 0 {
			return fmt.Errorf("--%s is %q, and --pattern has no group (?P<%[2]s>...)", flag, group)
		}
	}
	return nil
}

func (o *Options) checkTable() error {
	for flag, name := range map[string]string{"table": o.Table, "id": o.ID, "time": o.Time,
		"payload": o.Payload} {
		if flag == "table" && strings.Count(name, ".") > 1 || strings.ContainsAny(name, "\"`\x00") {
			return fmt.Errorf("--%s is %q, which is not a name", flag, name)
		}
	}
	return o.Server.CheckSQL()
}

// source names the source for people.
func (o *Options) source() string {
	switch {
	case o.Topic != "":
		return "topic " + o.Topic
	case o.File == "-":
		return "standard input"
	case o.File != "":
		return "file " + o.File
	}
	return "table " + o.Table
}
