package keys

import (
	"maps"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Commands returns the commands inspect, inflight, uncertain, resolve and forget.
func Commands() (all []*cli.Command) {
	for _, name := range []string{"inspect", "inflight", "uncertain", "resolve", "forget"} {
		all = append(all, (&Options{Command: name}).command())
	}
	return all
}

// command returns that of o.Command.
func (o *Options) command() *cli.Command {
	c := texts[o.Command]
	c.Exits = maps.Clone(c.Exits)
	c.Flags, c.Check, c.Run, c.Hide = o.flags, o.check, o.run, o.Server.Hide
	return &c
}

// scanned is what the commands that list say of how far they come.
const scanned = `

In Redis the command looks at every key of the database, also at those of other programs: a second
or two for a million, in small steps that keep nobody else waiting. Ctrl-C ends it with what was
found so far. The last line then says that the list is not complete, and how many keys were looked
at; so do "complete", "looked_at" and "of_about" of --json.`

// partly are the exit codes of a list.
var partly = map[int]string{
	cli.Done: "these are all, or --limit has ended the list: see the last line, or \"complete\" of --json",
	cli.Usage: "wrong usage, or a server that cannot be reached, refuses or fails; " +
		"keys that were found before that are listed",
	cli.Interrupted: "interrupted; keys that were found before that are listed",
}

var texts = map[string]cli.Command{
	"inspect": {
		Use: "inspect [KEY]", MaxArgs: 1, Short: "Show what a store knows of a key",
		Long: "Shows what the store knows of a key. It changes nothing.",
		Example: `onceward inspect order-7 --namespace shop --redis redis://127.0.0.1:6379
onceward inspect evt_A --namespace hooks --webhook stripe --endpoint billing
onceward inspect k1 --namespace api --method POST --url https://api.example.com/payments
onceward inspect --id 3cfa5a154910aa784941c09b82c104b2`,
		Exits: map[int]string{cli.Done: "there is a record", cli.No: "there is none"},
	},
	"inflight": {
		Use: "inflight", Short: "List the keys in flight",
		Long: `Lists the keys in flight, oldest claim first: by their IDs, because stores keep no keys. A key whose
lease has lapsed is listed, too: nobody has claimed it since.` + scanned,
		Example: "onceward inflight --older 10m --redis redis://127.0.0.1:6379",
		Exits:   partly,
	},
	"uncertain": {
		Use: "uncertain", Short: "List the keys whose effect may have happened",
		Long: `Lists the keys of which somebody has to find out whether their effect has happened, oldest claim
first: by their IDs, because stores keep no keys. Settle them with resolve.` + scanned,
		Example: "onceward uncertain --redis redis://127.0.0.1:6379",
		Exits:   partly,
	},
	"resolve": {
		Use: "resolve [KEY]", MaxArgs: 1, Short: "Say how an uncertain key has ended",
		Long: `Says how the attempt of an uncertain key has ended. --done: its effect has happened, and duplicates
are skipped. --released: it has not and will not, and may run again. Ask the downstream first. A key
that is not uncertain is left alone. Each change is a line of the log on standard error.`,
		Example: "onceward resolve order-7 --namespace shop --done --window 7d",
		Exits: map[int]string{cli.Done: "the key is settled",
			cli.No: "the key is not uncertain, or the answer was no"},
	},
	"forget": {
		Use: "forget [KEY]", MaxArgs: 1, Short: "Make a key claimable again",
		Long: `Makes a key claimable again, whatever became of it: its effect runs once more when the message is
delivered again. A key that is in flight is refused. Each change is a line of the log on standard
error.`,
		Example: "onceward forget order-7 --namespace shop",
		Exits: map[int]string{cli.Done: "the key is forgotten",
			cli.No: "the key is in flight, there is none, or the answer was no"},
	},
}
