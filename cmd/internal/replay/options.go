package replay

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/flags"
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

	// Redis is the URL of the consumer's store.
	Redis string
	// RedisCluster says that the URL names nodes of a Cluster.
	RedisCluster bool
	// RedisPassword replaces that of the URL, unless it is empty.
	RedisPassword string
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
}

// DefaultGroup is the consumer group unless -group names another.
const DefaultGroup = "onceward-replay"

const usage = `Usage: onceward replay -brokers HOST:PORT,... -topic DEAD -redis URL -namespace NAME -window DURATION [flags]

Sends dead letters back to the topics they came from, under the ids they had: the key is
made claimable again, the message is sent with acks of all replicas, and then the offset of
the letter is committed. Ends where the topic ended when it began. It may be interrupted,
and run again: it goes on where it stopped.

A letter whose message has been processed since is skipped. One whose key is uncertain or
in flight, which is none, or which a flag leaves out stays where it is for another run: the
group's offset stays at the first of them, and its metadata names the ones behind that are
done. Prints a line per letter, and on a terminal how far it is.

-namespace, -prefix, -window and the layout must be those of the consumer; the scope of a key
is in its letter. A letter without a record is left: with another store or namespace no record
is found, and what has succeeded since would run again. "record=none" in most lines is a sign
of that; look at it first with -n. -unrecorded and -expired send such letters. The Redis user needs the keys
ow-lease:* beside the consumer's, for the lease that keeps a second run away.

Exit code: 0 all selected letters were sent or had been processed; 1 some are left where
they are, or an error ended the run; 2 wrong flags, or a server that cannot be reached or
refuses: nothing was sent; 130 interrupted.

Flags:
`

// raw are flags that need a second look.
type raw struct {
	layout, secretEnv, redisPasswordEnv string
}

// ParseOptions reads the flags, and secrets from the environment. flag.ErrHelp is returned
// after usage has been written to out; any other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	var r raw
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	o.kafkaFlags(f)
	o.redisFlags(f, &r)
	o.letterFlags(f)
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	if err := o.resolve(r); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o *Options) kafkaFlags(f *flag.FlagSet) {
	o.Kafka.Flags(f)
	f.StringVar(&o.Topic, "topic", "", "dead-letter `topic`")
	f.StringVar(&o.Group, "group", DefaultGroup,
		"consumer `group` that remembers which letters are done; not the consumer's")
}

func (o *Options) redisFlags(f *flag.FlagSet, r *raw) {
	f.StringVar(&o.Redis, "redis", "",
		"`URL` redis://user@host:port/db of the consumer's Redis, or rediss://")
	f.BoolVar(&o.RedisCluster, "redis-cluster", false,
		"the URL is of a Cluster; more nodes as ?addr=host:port&addr=...")
	f.StringVar(&r.redisPasswordEnv, "redis-password-env",
		"", "`variable` of the environment that holds the password")
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` of the consumer's Deduper")
	f.DurationVar(&o.Window, "window", 0, "window of the consumer's Deduper")
	f.StringVar(&o.Store.Prefix, "prefix", redisadapter.DefaultPrefix,
		"`prefix` of the consumer's keys in Redis")
	f.StringVar(&r.layout, "layout", "full",
		"`layout` of the consumer's keys: full or compact")
	f.StringVar(&r.secretEnv, "secret-env",
		"", "`variable` of the environment that holds the secret of the layout compact")
	f.IntVar(&o.Store.ExpectedKeys, "expected-keys", 0,
		"expected `keys` of the layout compact")
}

func (o *Options) letterFlags(f *flag.FlagSet) {
	f.BoolVar(&o.DryRun, "n", false, "dry run: show what would be done, change and commit nothing")
	f.IntVar(&o.Max, "max", 0, "send at most this `number` of letters (default all)")
	f.Func("id", "send the letters of this message `id` alone; may be repeated",
		func(id string) error {
			if id == "" {
				return errors.New("is empty")
			}
			o.IDs = append(o.IDs, id)
			return nil
		})
	f.StringVar(&o.Error, "error", "", "send the letters alone whose error contains this `text`")
	f.BoolVar(&o.Unrecorded, "unrecorded", false,
		"send letters, too, that are younger than the window and have no record: right where their\n"+
			"records were given up, wrong where the store or the namespace is not the consumer's")
	f.BoolVar(&o.Expired, "expired", false,
		"send letters, too, that are older than the window and have no record: one that was\n"+
			"replayed before, and succeeded, has its effect again")
}

// resolve looks at what flags stand for.
func (o *Options) resolve(r raw) error {
	layouts := map[string]redisadapter.Layout{
		"full": redisadapter.Full, "compact": redisadapter.Compact,
	}
	layout, known := layouts[r.layout]
	if !known {
		return fmt.Errorf("-layout is %q; full and compact are known", r.layout)
	}
	o.Store.Layout = layout
	if err := o.Kafka.Check(); err != nil {
		return err
	}
	var secret string
	for _, v := range []struct {
		flag, name string
		to         *string
	}{
		{"-redis-password-env", r.redisPasswordEnv, &o.RedisPassword},
		{"-secret-env", r.secretEnv, &secret},
	} {
		if *v.to = os.Getenv(v.name); v.name != "" && *v.to == "" {
			return fmt.Errorf("%s: the environment has no %s", v.flag, v.name)
		}
	}
	if secret != "" {
		o.Store.Secret = []byte(secret)
	}
	return nil
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	switch {
	case o.Topic == "":
		return errors.New("-topic is missing")
	case o.Group == "":
		return errors.New("-group is empty")
	case o.Redis == "":
		return errors.New("-redis is missing")
	case o.Namespace == "":
		return errors.New("-namespace is missing")
	case o.Window <= 0:
		return errors.New("-window is missing, or not positive: it tells letters whose messages may have been processed, and forgotten, since")
	case o.Max < 0:
		return fmt.Errorf("-max is %d; it must not be negative", o.Max)
	}
	return nil
}
