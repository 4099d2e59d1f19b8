package prove

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
)

// Options are the flags of the command.
type Options struct {
	Program []string
	URL     string
	Kafka   broker.Options
	Topic   string
	Count   string

	Messages   int
	Duplicates float64 // share of messages that are sent twice
	Kills      int
	Every      time.Duration // between two kills, on average
	Workers    int           // that send at the same time
	Settle     time.Duration // how long the program may take for the rest at the end
	Seed       uint64
	JSON       bool
}

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "prove -- PROGRAM [ARGUMENT...]", MaxArgs: 1000,
		Short: "Kill a program of yours while it works, and count lost and doubled effects",
		Long: `Starts the program, sends it messages, some of them twice, kills it with SIGKILL at random
moments, starts it again, and counts what was lost and what was done twice. The program may be in any
language, with any library or none.

The program is a server on 127.0.0.1:$PORT, which gets each message as a POST with the header
Idempotency-Key and a JSON body with "id". An answer of 200 to 299 acknowledges it; until then it is
sent again. With --topic the program is a consumer of that topic, and each message has the header
message-id.

An effect is a POST of the program to $EFFECTS_URL?id=ID. Where effects are elsewhere, such as rows of
a database, --count is a command for the shell that prints the id of each of them, one a line. It
also runs before the program starts, to see whether the shell finds it.

Lost is a message that was acknowledged and has no effect, doubled is one with several. Each is shown
with the kills that happened while it was worked on. A loss or a double without a kill is a fault of
the program under load alone.`,
		Example: "onceward prove -- python3 service.py\n" +
			"onceward prove --count 'psql -Atc \"SELECT id FROM payments\"' -- ./service\n" +
			"onceward prove --brokers localhost:9092 --topic orders -- ./consumer",
		Exits: map[int]string{
			cli.Done:  "every message had its effect once",
			cli.No:    "messages were lost, doubled, or not acknowledged",
			cli.Usage: "wrong usage, or the program or its effects cannot be reached",
		},
		Flags: o.flags,
		Check: o.check,
		Run:   o.run,
	}
}

func (o *Options) flags(f *cli.Flags) {
	f.StringVar(&o.URL, "url", "", "`URL` to post messages to (default http://127.0.0.1:$PORT/)")
	o.Kafka.Flags(f)
	f.StringVar(&o.Topic, "topic", "", "`name` of a topic to write messages to")
	f.StringVar(&o.Count, "count", "", "`command` that prints the id of each effect, one a line")
	f.IntVar(&o.Messages, "messages", 300, "`number` of messages")
	f.ShareVar(&o.Duplicates, "duplicates", 0.3, "`share` of the messages to send once more")
	f.IntVar(&o.Kills, "kills", 20, "`number` of kills")
	f.DurationVar(&o.Every, "every", 400*time.Millisecond,
		"mean time from a start to the next kill")
	f.IntVar(&o.Workers, "workers", 8, "messages to send at a `time`")
	f.DurationVar(&o.Settle, "settle", 20*time.Second,
		"how long the program may take for the rest after the last kill")
	f.Uint64Var(&o.Seed, "seed", 0, "`number` that decides the moments of kills (default random)")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

func (o *Options) check(args []string) error {
	o.Program = args
	switch {
	case len(args) == 0:
		return errors.New("there is no program: onceward prove -- PROGRAM [ARGUMENT...]")
	case o.Messages < 1 || o.Messages > 1_000_000:
		return fmt.Errorf("--messages is %d; 1 to 1000000 are sent", o.Messages)
	case !(o.Duplicates >= 0 && o.Duplicates <= 1):
		return fmt.Errorf("--duplicates is %g; 0 to 1 (100%%) is possible", o.Duplicates)
	case o.Kills < 0:
		return fmt.Errorf("--kills is %d; it cannot be negative", o.Kills)
	case o.Every <= 0:
		return fmt.Errorf("--every is %v; it must be positive", o.Every)
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; at least 1 sends", o.Workers)
	case o.Settle <= 0:
		return fmt.Errorf("--settle is %v; it must be positive", o.Settle)
	case o.Topic != "" && o.URL != "":
		return errors.New("--url and --topic exclude each other")
	case o.Topic != "":
		return o.Kafka.Check()
	}
	if u, err := url.Parse(o.URL); o.URL != "" &&
		(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--url is %q, which is not http://host:port/path", o.URL)
	}
	return nil
}

func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	r, err := prove(ctx, o, s.Err)
	if err != nil {
		return err
	}
	if err = s.Report(r, o.JSON, r.print); err == nil && !r.Right() {
		return cli.Fail(cli.No, nil)
	}
	return err
}
