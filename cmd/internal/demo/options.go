package demo

import (
	"fmt"
	"net"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/loopback"
)

const (
	partitions  = 6
	maxMessages = 1_000_000
)

// Options are the flags of the demo.
type Options struct {
	Messages   int
	Duplicates int
	Seed       uint64
	Naive      bool
	Lease      time.Duration
	Timeout    time.Duration
	Takes      time.Duration
	Listen     string
	Keep       bool
	Break      worker.Fault
	JSON       bool

	given func(flag string) bool
}

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "demo", Short: "Send duplicates, kill workers, and count the effects",
		Long: `Produces a stream with duplicates, consumes it with worker processes, kills some of them, and
counts in a ledger how often each effect happened. It needs nothing but this program: broker, Redis
and ledger are embedded. The usual pattern, SET NX and DEL, runs on the same stream to compare with.

With record and effect in one SQL transaction each effect comes out once. With Redis nothing is lost,
and every double is traced to the kill that caused it.

With --listen a browser sees the demo: the console, while it runs and until it is interrupted, and
metrics. Both count across crashes: the workers tell this
process.`,
		Example: "onceward demo\nonceward demo --listen 127.0.0.1:8080 --takes 2m",
		Exits: map[int]string{cli.Done: "the promises were kept",
			cli.No: "a promise was broken, or the run did not come to its end"},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
	}
}

func (o *Options) flags(f *cli.Flags) {
	f.IntVar(&o.Messages, "messages", 1000, "number of unique `ids` to produce")
	f.IntVar(&o.Duplicates, "duplicates",
		12, "`percent` of messages to repeat as retry, in another partition, and at the end")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of the stream: the same gives the same stream")
	f.BoolVar(&o.Naive, "naive", true,
		"run the usual SET NX / DEL pattern on the same stream, too")
	f.DurationVar(&o.Lease, "lease", 2*time.Second, "lease of a claim")
	f.DurationVar(&o.Timeout, "timeout", 3*time.Minute, "give up on a composition after this time")
	f.DurationVar(&o.Takes, "takes", 0,
		"send each composition's stream in this `time`, 1s to 1h (default 5s; less for short streams)")
	f.StringVar(&o.Listen, "listen", "",
		"`host:port` of this machine to serve console and /metrics on; port 0 is a free one")
	f.BoolVar(&o.Keep, "keep", false, "keep the ledger and say where it is")
	f.ChoiceVar((*string)(&o.Break), "break", "", "break the workers, to see this fail: skip this `step`",
		string(worker.SkipRecord), string(worker.SkipEffect))
	f.BoolVar(&o.JSON, "json", false, "write what was found as JSON; progress goes to standard error")
	o.given = f.Changed
}

// check finds the first invalid flag.
func (o *Options) check() error {
	_, port, err := net.SplitHostPort(o.Listen)
	switch {
	case o.Messages < 1 || o.Messages > maxMessages:
		return fmt.Errorf("--messages is %d; 1 to %d are possible", o.Messages, maxMessages)
	case o.Duplicates < 0 || o.Duplicates > 100:
		return fmt.Errorf("--duplicates is %d; 0 to 100 percent are possible", o.Duplicates)
	case o.Lease < 200*time.Millisecond || o.Lease > time.Minute:
		return fmt.Errorf("--lease is %v; 200ms to 1m are possible", o.Lease)
	case o.given("takes") && (o.Takes < time.Second || o.Takes > time.Hour):
		return fmt.Errorf("--takes is %v; 1s to 1h are possible", o.Takes)
	case o.given("takes") && o.Takes >= o.Timeout:
		return fmt.Errorf("--takes is %v, which leaves nothing of --timeout, %v", o.Takes, o.Timeout)
	case o.given("listen") && (err != nil || port == "" || !loopback.Is(o.Listen)):
		return fmt.Errorf("--listen is %q; a host:port of this machine is possible, such as 127.0.0.1:8080: the console asks nobody who they are", o.Listen)
	case o.Timeout < time.Second:
		return fmt.Errorf("--timeout is %v; at least 1s is needed", o.Timeout)
	}
	return nil
}
