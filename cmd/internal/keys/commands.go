package keys

import (
	"maps"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Commands returns the commands inspect, explain, inflight, uncertain, resolve and forget.
func Commands() (all []*cli.Command) {
	for _, name := range []string{"inspect", "explain", "inflight", "uncertain", "resolve",
		"forget"} {
		all = append(all, (&Options{Command: name}).command())
	}
	return all
}

// command returns the command that o.Command names.
func (o *Options) command() *cli.Command {
	c := texts[o.Command]
	c.Exits = maps.Clone(c.Exits)
	c.Flags, c.Check, c.Run, c.Hide = o.flags, o.check, o.run, o.Server.Hide
	return &c
}

// scanned is the help about how far a list goes, for the commands that list keys.
const scanned = `

Attempts past their point of no return are in an index: they are all listed, at once, and counted.
For the others the command looks at the keys of the Redis database, also at those of other programs,
in small steps that keep nobody else waiting, for as long as --for says, or until Ctrl-C. The last
line says whether the list is complete, and how many keys were looked at; so do "complete",
"looked_at" and "of_about" of --json.`

// partly are the exit codes of a list.
var partly = map[int]string{
	cli.Done: "these are all, or --limit has ended the list: see the last line, or \"complete\" of --json",
	cli.Usage: "wrong usage, or a server that cannot be reached, refuses or fails; " +
		"keys that were found before that are listed",
	cli.Interrupted: "interrupted; keys that were found before that are listed",
}

// findHelp is the help about finding a key.
const findHelp = `

KEY is what you have. It is the id of a message or an event, an Idempotency-Key, an ID or its first
digits, a label or its beginning, or a position in Kafka (TOPIC/PARTITION/OFFSET). It may be a line
of a log with one of these in it. Flags give the scope. Without a record the command says where it
has looked and what it could not know.`

var texts = map[string]cli.Command{
	"inspect": {
		Use: "inspect [KEY]", MaxArgs: 1, Short: "Show what a store knows of a key",
		Long: "Shows what the store knows of a key. It changes nothing." + findHelp,
		Example: `onceward inspect order-7 --namespace shop --redis redis://127.0.0.1:6379
onceward inspect evt_A --namespace hooks --webhook stripe --endpoint billing
onceward inspect k1 --namespace api --method POST --url https://api.example.com/payments
onceward inspect --id 3cfa5a154910aa784941c09b82c104b2`,
		Exits: map[int]string{cli.Done: "there is a record", cli.No: "there is none"},
	},
	"explain": {
		Use: "explain [KEY]", MaxArgs: 1, Short: "Say why a key ran, ran twice or does not run",
		Long: `Explains a key on one page: what inspect shows, what it means, what the servers did around it
(restarts, failovers, evictions, and what doctor finds), and what to do. With --brokers it also
names the group and the topic of the message that has made the newest claim, and says what the group
has committed. It changes nothing.` + findHelp,
		Example: `onceward explain order-7 --namespace shop --redis redis://127.0.0.1:6379
onceward explain evt_A --namespace hooks --endpoint billing
onceward explain 'level=WARN msg="..." key_id=3cfa5a154910aa784941c09b82c104b2'
onceward explain orders/3/77 --brokers 127.0.0.1:9092`,
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
		Long: `Lists the keys of which somebody has to find out whether their effect has happened. The oldest claim
comes first. Lists have IDs, because stores keep no keys. Settle them with resolve. The list and the
count are exact: they come from an index, at once, whatever else the store holds.`,
		Example: "onceward uncertain --redis redis://127.0.0.1:6379",
		Exits:   partly,
	},
	"resolve": {
		Use: "resolve [KEY]", MaxArgs: 1, Short: "Say how an uncertain key has ended",
		Long: `Says how the attempt of an uncertain key has ended. --done: its effect has happened, and duplicates
are skipped. --released: it has not and will not, and may run again. Ask the downstream first. A key
that is not uncertain is left alone. Each change is a line of the log on standard error. --all
resolves all keys that are uncertain, or those that --older, --label and --limit choose, after one question.`,
		Example: `onceward resolve order-7 --namespace shop --done --window 7d
onceward resolve --all --label "POST /payments" --older 1h --released --dry-run`,
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
