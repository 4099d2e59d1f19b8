package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/keys"
)

// Options are the flags of the command.
type Options struct {
	// Kafka says where the topics are.
	Kafka broker.Options
	Topic string
	Group string

	// Location is the consumer's store, in Redis.
	keys.Location
	Namespace string
	Window    time.Duration

	DryRun     bool
	Max        int
	IDs        []string
	Error      string
	Unrecorded bool
	Expired    bool
	JSON       bool
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
dead letter. It ends where the topic ended when it began. It may be interrupted and run again: it
continues where it stopped.

A message that has been processed since is skipped. A message stays where it is for another run when
its key is uncertain or in flight, or when a flag leaves it out. The group's offset stays at
the first of them, and its metadata names the ones behind it that are done. replay prints a line for
each message. Each message that is sent is also a line of the log on standard error.

--namespace, --prefix and --window must be those of the consumer; the scope of a key is in the dead
letter. A message without a record is left: with another store or namespace no record is found, and
a message that has succeeded since would run again. "record=none" in most lines is a sign of that;
look at it first with --dry-run. --unrecorded and --expired send such messages. The Redis
user also needs the keys ow-lease:*, for the lease that keeps a second run away.`,
		Example: `onceward replay --brokers 127.0.0.1:9092 --topic orders.dead --redis redis://127.0.0.1:6379 \
    --namespace shop --window 7d --dry-run`,
		Exits: map[int]string{
			cli.Done:  "all selected messages were sent or had been processed",
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
		"`group` that remembers which messages are done; not the consumer's")
	o.RedisFlags(f)
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` of the consumer's Deduper")
	f.DurationVar(&o.Window, "window", 0, "window of the consumer's Deduper")
	f.Require("brokers", "topic", "redis", "namespace", "window")
	f.Setting("namespace", "window")
	f.BoolVarP(&o.DryRun, "dry-run", "n", false,
		"show what would be done, change and commit nothing")
	f.IntVar(&o.Max, "max", 0, "send at most this `number` of messages (default all)")
	f.StringArrayVar(&o.IDs, "id", nil,
		"send only the messages with this `id`; may be repeated")
	f.StringVar(&o.Error, "error", "", "send only the messages whose error contains this `text`")
	f.BoolVar(&o.Unrecorded, "unrecorded", false,
		"send also messages that are younger than the window and have no record: right where their "+
			"records were given up, wrong where the store or the namespace is not the consumer's")
	f.BoolVar(&o.Expired, "expired", false,
		"send also messages that are older than the window and have no record: the effect of a message "+
			"that was replayed before, and succeeded, runs again")
	f.BoolVar(&o.JSON, "json", false, "write a JSON object on a line for each message, and the counts")
}

// check finds the first invalid flag.
func (o *Options) check() error {
	switch {
	case o.Group == "":
		return errors.New("--group is empty")
	case slices.Contains(o.IDs, ""):
		return errors.New("--id is empty")
	case o.Window <= 0:
		return errors.New("--window is not positive: a message may have been processed since, and forgotten after the window")
	case o.Max < 0:
		return fmt.Errorf("--max is %d; it must not be negative", o.Max)
	}
	if err := o.Kafka.Check(); err != nil {
		return err
	}
	return o.CheckRedis()
}
