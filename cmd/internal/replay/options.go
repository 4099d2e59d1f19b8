package replay

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/redisadapter"
)

// Options are the flags of the command.
type Options struct {
	// Kafka is where the topics are.
	Kafka broker.Options
	// Topic has the dead letters.
	Topic string
	// Group remembers which letters are done.
	Group string

	// Server is the Redis of the consumer's store.
	Server server.Options
	// Namespace and Window are those of the consumer.
	Namespace string
	Window    time.Duration
	// Store has the options of the consumer's store.
	Store redisadapter.Options

	// DryRun changes nothing.
	DryRun bool
	// Max is how many letters are sent at most; 0 for all.
	Max int
	// IDs and Error select letters: by their message's id, and by a part of the reason.
	IDs   []string
	Error string
	// Unrecorded sends letters too of which nothing is on record.
	Unrecorded bool
	// Expired sends letters too that may have been processed longer than Window ago.
	Expired bool
	// JSON writes for programs.
	JSON bool

	layout, secretEnv string
}

// DefaultGroup is the consumer group unless --group names another.
const DefaultGroup = "onceward-replay"

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "replay", Short: "Send dead letters back to their topics, under the ids they had",
		Long: `Sends dead letters back to the topics they came from, under the ids they had: replay makes the key
claimable again, sends the message with acks of all replicas, and then commits the offset of the
letter. It ends where the topic ended when it began. It may be interrupted and run again: it
continues where it stopped.

A letter whose message has been processed since is skipped. A letter stays where it is for another
run when its key is uncertain or in flight, or when a flag leaves it out. The group's offset stays at
the first of them, and its metadata names the ones behind it that are done. replay prints a line for
each letter. Each letter that is sent is also a line of the log on standard error.

--namespace, --prefix, --window and the layout must be those of the consumer; the scope of a key is
in its letter. A letter without a record is left: with another store or namespace no record is
found, and a message that has succeeded since would run again. "record=none" in most lines is a sign
of that; look at it first with --dry-run. --unrecorded and --expired send such letters. The Redis
user also needs the keys ow-lease:*, for the lease that keeps a second run away.`,
		Example: `onceward replay --brokers 127.0.0.1:9092 --topic orders.dead --redis redis://127.0.0.1:6379 \
    --namespace shop --window 7d --dry-run`,
		Exits: map[int]string{
			cli.Done:  "all selected letters were sent or had been processed",
			cli.No:    "some are left where they are, or an error ended the run",
			cli.Usage: "wrong usage, or a server that cannot be reached or refuses: nothing was sent",
		},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Kafka.Flags(f)
	f.StringVar(&o.Topic, "topic", "", "dead-letter `topic`")
	f.StringVar(&o.Group, "group", DefaultGroup,
		"consumer `group` that remembers which letters are done; not the consumer's")
	o.Server.RedisFlags(f)
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` of the consumer's Deduper")
	f.DurationVar(&o.Window, "window", 0, "window of the consumer's Deduper")
	f.StringVar(&o.Store.Prefix, "prefix", redisadapter.DefaultPrefix,
		"`prefix` of the consumer's keys in Redis")
	f.ChoiceVar(&o.layout, "layout", "full", "`layout` of the consumer's keys", "full", "compact")
	f.StringVar(&o.secretEnv, "secret-env",
		"", "`variable` of the environment that holds the secret of the layout compact")
	f.IntVar(&o.Store.ExpectedKeys, "expected-keys", 0, "expected `keys` of the layout compact")
	f.Require("brokers", "topic", "redis", "namespace", "window")
	f.Setting("namespace", "window", "prefix", "secret-env")
	o.letterFlags(f)
}

func (o *Options) letterFlags(f *cli.Flags) {
	f.BoolVarP(&o.DryRun, "dry-run", "n", false,
		"show what would be done, change and commit nothing")
	f.IntVar(&o.Max, "max", 0, "send at most this `number` of letters (default all)")
	f.StringArrayVar(&o.IDs, "id", nil,
		"send only the letters of this message `id`; may be repeated")
	f.StringVar(&o.Error, "error", "", "send only the letters whose error contains this `text`")
	f.BoolVar(&o.Unrecorded, "unrecorded", false,
		"send also letters that are younger than the window and have no record: right where their "+
			"records were given up, wrong where the store or the namespace is not the consumer's")
	f.BoolVar(&o.Expired, "expired", false,
		"send also letters that are older than the window and have no record: the effect of a letter "+
			"that was replayed before, and succeeded, runs again")
	f.BoolVar(&o.JSON, "json", false, "write a JSON object on a line for each letter, and the counts")
}

// read looks at what flags stand for.
func (o *Options) read() error {
	if o.layout == "compact" {
		o.Store.Layout = redisadapter.Compact
	}
	if err := o.Kafka.Check(); err != nil {
		return err
	}
	if err := o.Server.CheckRedis(); err != nil {
		return err
	}
	if o.secretEnv != "" {
		secret := os.Getenv(o.secretEnv)
		if secret == "" {
			return fmt.Errorf("--secret-env: the environment has no %s", o.secretEnv)
		}
		o.Store.Secret = []byte(secret)
	}
	return nil
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	switch {
	case o.Group == "":
		return errors.New("--group is empty")
	case slices.Contains(o.IDs, ""):
		return errors.New("--id is empty")
	case o.Window <= 0:
		return errors.New("--window is not positive: it tells letters whose messages may have been processed, and forgotten, since")
	case o.Max < 0:
		return fmt.Errorf("--max is %d; it must not be negative", o.Max)
	}
	return o.read()
}
