package keys

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
	"github.com/onceward/onceward/internal/keyspec"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

// Options are the flags of the commands; not every command has all.
type Options struct {
	Command string
	Location
	// typed is KEY as the user typed it. ID is the ID of KEY, or the value of --id.
	typed string
	ID    driver.ID
	// clue is what else KEY reveals, and candidates are the keys that KEY may stand for. looked
	// lists where the command looked, notKnown lists what it could not know, and foundAs is how it
	// found the key.
	clue       clue
	candidates []candidate
	looked     []Looked
	notKnown   []string
	foundAs    string
	// Kafka is asked for the names of topics and groups.
	Kafka broker.Options
	// Spec is what the flags say about the key; its Namespace is that of the Deduper.
	keyspec.Spec
	// prefix is the beginning of an ID, if the user did not type the whole ID.
	prefix         string
	Marks          bool
	Result         bool
	Older          time.Duration
	Limit          int
	Label          string
	For            time.Duration
	All, DryRun    bool
	Done, Released bool
	Window, Hold   time.Duration
	Yes            bool
	JSON           bool

	id, body, group, topic string // flags that are parsed later
}

const (
	defaultLimit = 100
	defaultFor   = 5 * time.Second
	defaultHold  = time.Hour
)

// finds reports whether the command looks for a key by whatever is known about it. Commands that
// change a key require its exact name.
func (o *Options) finds() bool { return o.Command == "inspect" || o.Command == "explain" }

// lists reports whether the command is about many keys.
func (o *Options) lists() bool {
	return o.Command == "inflight" || o.Command == "uncertain" || o.All
}

func (o *Options) flags(f *cli.Flags) {
	listing := o.Command == "inflight" || o.Command == "uncertain"
	if !listing {
		o.keyFlags(f)
	}
	switch o.Command {
	case "inspect", "explain":
		f.BoolVar(&o.Marks, "marks", false,
			"the table has marks (sqladapter.Ledger) instead of claims (sqlstore.Store)")
		f.BoolVar(&o.Result, "result", false, "show the beginning of the stored result")
	case "resolve":
		f.BoolVar(&o.Done, "done", false, "the effect has happened")
		f.BoolVar(&o.Released, "released", false, "the effect has not happened, and may run again")
		f.DurationVar(&o.Window, "window", 0,
			"for how long --done is remembered: the window of the Deduper; the layout compact knows it")
		f.Setting("window")
		f.Instead("released", "window")
		f.BoolVar(&o.All, "all", false,
			"instead of KEY: all uncertain keys, of which --older, --label and --limit choose some")
		f.BoolVar(&o.DryRun, "dry-run", false, "list what would be resolved, and change nothing")
	case "inflight":
		f.DurationVar(&o.For, "for", defaultFor,
			"look for keys in Redis for so `long`, and say how much was seen; 0: at all of them")
	}
	if listing || o.Command == "resolve" {
		f.DurationVar(&o.Older, "older", 0, "only keys that were claimed so `long` ago, or earlier")
		f.StringVar(&o.Label, "label", "", "only keys whose label begins with this `text`")
		f.IntVar(&o.Limit, "limit", defaultLimit, "at most this `number` of keys, the oldest")
	}
	if o.Command == "explain" {
		o.Kafka.Flags(f)
	}
	if o.Command == "resolve" || o.Command == "forget" {
		f.DurationVar(&o.Hold, "hold", defaultHold,
			"hold of the Deduper: for how long an earlier owner can write nothing")
		f.BoolVar(&o.Yes, "yes", false, "do not ask")
		f.Setting("hold")
	}
	o.Flags(f)
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

// keyFlags name a key.
func (o *Options) keyFlags(f *cli.Flags) {
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` of the Deduper")
	f.Setting("namespace")
	f.StringVar(&o.Scope, "scope", "", "`scope` of the key")
	f.StringVar(&o.id, "id", "",
		"`ID` instead of a key, as lists, logs and answers have it: 32 hex digits, or at least the first 4 where no other key begins so")
	f.Instead("id", "namespace")
	f.StringVar(&o.Method, "method", "", "of an HTTP request: its `method`")
	f.StringVar(&o.URL, "url", "",
		"of an HTTP request: its `URL`, such as https://api.example.com/payments")
	f.StringVar(&o.Route, "route", "",
		"of an HTTP request: what Config.Route returns, instead of --url")
	f.StringVar(&o.GRPC, "grpc", "", "of a gRPC call: its full `method`, /package.Service/Method")
	f.StringVar(&o.Tool, "tool", "", "of an MCP call: the `name` of the tool")
	f.StringVar(&o.Principal, "principal", "",
		"of an HTTP request, a gRPC or an MCP call: the `account` that Scope returns (default that of Unscoped)")
	f.StringVar(&o.Name, "name", "", "of an HTTP request or a gRPC call: `Name` of the Config")
	f.StringVar(&o.group, "group", "", "of a Kafka message, whose id is KEY: the consumer `group`")
	f.StringVar(&o.topic, "topic", "",
		"of a Kafka message: its first `topic`, not a topic that it is retried from")
	f.StringVar(&o.Provider, "webhook", "",
		"of a webhook, whose id is KEY: the `provider`, such as stripe (default: inspect and explain try all)")
	f.StringVar(&o.Endpoint, "endpoint", "", "of a webhook: `Endpoint` of the receiver's Config")
	f.StringVar(&o.body, "body", "",
		"of a webhook whose id is not signed, such as GitHub's: a `file` with its body; without KEY, unless the Config has Relabelled")
	f.StringVar(&o.EventType, "event-type", "", "of a webhook with --body: its `type`, such as push")
}

// name sets the ID that the command is about.
func (o *Options) name(operands []string) error {
	want := 1
	if o.lists() || o.id != "" || o.body != "" {
		want = 0
	}
	switch {
	case len(operands) > want && o.body == "":
		return fmt.Errorf("unexpected argument %q", operands[want])
	case o.lists():
		return nil
	case len(operands) < want:
		return errors.New("KEY is missing, or --id")
	case o.id != "":
		return o.identify()
	case o.Namespace == "" && (!o.finds() || o.Scoped() && o.group == ""):
		return errors.New("--namespace is missing")
	}
	if len(operands) > 0 {
		o.typed = operands[0]
	}
	if o.body != "" {
		body, err := os.ReadFile(o.body)
		if err != nil {
			return fmt.Errorf("--body: %w", err)
		}
		o.Body = append([]byte{}, body...) // not nil, even if the file is empty
	}
	switch {
	case (o.group == "") != (o.topic == ""):
		return errors.New("--group and --topic go together")
	case o.group != "" && o.Scope != "":
		return errors.New("--group and --topic are the scope: leave --scope out")
	case o.group != "":
		o.Scope = kafkaadapter.ScopeOf(o.group, o.topic)
	}
	o.Key = o.typed
	err := o.derive()
	var input *keyspec.Error
	if errors.As(err, &input) {
		field := "--" + strings.ToLower(input.Field)
		if field == "--key" {
			field = "KEY"
		}
		return fmt.Errorf("%s %s", field, input.Reason)
	}
	return err
}

// leastPrefix is how many digits of an ID a search needs at least.
const leastPrefix = 4

// identify reads --id.
func (o *Options) identify() error {
	switch {
	case o.Marks:
		return errors.New("--marks needs KEY: a mark is not looked up by its ID")
	case o.Namespace != "" || o.Scoped() || o.body != "" || o.group != "" || o.topic != "":
		return errors.New("--id has namespace and scope in it: leave --namespace, --scope and what else names a key out")
	}
	text := strings.ToLower(strings.TrimPrefix(o.id, keyname.URNPrefix))
	whole := 2 * len(o.ID)
	if len(text) < leastPrefix || len(text) > whole ||
		strings.Trim(text, "0123456789abcdef") != "" {
		return fmt.Errorf("--id is %q, and not 32 hex digits, or the first %d or more of them",
			o.id, leastPrefix)
	}
	if len(text) < whole {
		o.prefix = text
		return nil
	}
	b, _ := hex.DecodeString(text) // these are 32 hex digits
	o.ID = driver.ID(b)
	o.candidates = []candidate{{as: "the ID", Entry: redisadapter.Entry{ID: o.ID}}}
	return nil
}

// check finds the first invalid flag.
func (o *Options) check(operands []string) error {
	err := o.name(operands)
	if err == nil {
		err = o.Check()
	}
	if err == nil && o.Kafka.Given() {
		err = o.Kafka.Check()
	}
	switch {
	case err != nil:
		return err
	case o.Marks && o.Server.Redis != "":
		return errors.New("--marks needs --sql")
	case o.Command == "resolve" && !o.All && (o.Older != 0 || o.Label != ""):
		return errors.New("--older and --label need --all")
	case o.All && o.Scoped():
		return errors.New("--all is of all keys in the store: leave what names one out")
	case o.For < 0:
		return fmt.Errorf("--for is %v; it must not be negative", o.For)
	case o.lists() && o.Limit < 1:
		return fmt.Errorf("--limit is %d; it must be positive", o.Limit)
	case o.Older < 0:
		return fmt.Errorf("--older is %v; it must not be negative", o.Older)
	case o.Command == "resolve" && o.Done == o.Released:
		return errors.New("one of --done and --released is wanted")
	case o.Released && o.Window != 0:
		return errors.New("--window goes with --done")
	case o.Window < 0:
		return fmt.Errorf("--window is %v; it must not be negative", o.Window)
	case o.JSON && !o.Yes && !o.DryRun && (o.Command == "resolve" || o.Command == "forget"):
		return errors.New("--json needs --yes: a question is not JSON")
	case o.Hold < 0:
		return fmt.Errorf("--hold is %v; it must not be negative", o.Hold)
	}
	return nil
}

// what names the key for people. It has no line breaks and no control characters of a terminal.
func (o *Options) what() string {
	switch {
	case (o.Namespace == "" || o.typed == "") && o.ID != driver.ID{}:
		return "id " + hex.EncodeToString(o.ID[:])
	case o.Namespace == "" || o.clue.line:
		return fmt.Sprintf("%q", o.typed)
	}
	what := fmt.Sprintf("%q of namespace %s", o.typed, o.Namespace)
	switch {
	case o.Provider != "":
		what += fmt.Sprintf(", webhook %q, endpoint %q", o.Provider, o.Endpoint)
	case o.Tool != "":
		what += fmt.Sprintf(", tool %q", o.Tool)
	case o.GRPC != "":
		what += fmt.Sprintf(", gRPC %q", o.GRPC)
	case o.Method != "":
		what += fmt.Sprintf(", %q", strings.ToUpper(o.Method)+" "+o.URL+o.Route)
	case o.Scope != "":
		what += ", scope " + o.Scope
	}
	if o.Principal != "" {
		what += fmt.Sprintf(", principal %q", o.Principal)
	}
	return what
}
