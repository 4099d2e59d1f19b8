package keys

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/flags"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
	"github.com/onceward/onceward/internal/keyspec"
	"github.com/onceward/onceward/kafkaadapter"
)

// Options are the flags of the commands; not every command has all.
type Options struct {
	Command string
	Place
	// typed is KEY, and ID that of it, unless it was given itself.
	typed string
	ID    driver.ID
	// Spec is what was said of the key; its Namespace is that of the Deduper.
	keyspec.Spec
	// prefix is the beginning of an ID, in place of all of it.
	prefix string
	// Marks tells that the table has marks.
	Marks bool
	// Result shows a preview of the stored result.
	Result bool
	// Older and Limit choose what is listed.
	Older time.Duration
	Limit int
	// Done and Released say what the effect of an uncertain key has come to.
	Done, Released bool
	// Window and Hold are those of the Deduper.
	Window, Hold time.Duration
	// Yes asks no question.
	Yes bool
	// JSON writes for programs.
	JSON bool
}

const (
	defaultLimit = 100
	defaultHold  = time.Hour
)

var usages = map[string]string{
	"inspect": `Usage: onceward inspect KEY -namespace NAME (-redis URL | -sql DSN) [flags]
       onceward inspect KEY -namespace NAME -method METHOD -url URL [-principal ACCOUNT] (-redis URL | -sql DSN) [flags]
       onceward inspect KEY -namespace NAME -grpc METHOD [-principal ACCOUNT] (-redis URL | -sql DSN) [flags]
       onceward inspect KEY -namespace NAME -webhook PROVIDER -endpoint NAME (-redis URL | -sql DSN) [flags]
       onceward inspect -id ID (-redis URL | -sql DSN) [flags]

Shows what the store knows of a key. It changes nothing.

Exit code: 0 there is a record; 1 there is none; 2 wrong flags, or a server that cannot be
reached or refuses; 130 interrupted.
`,
	"inflight": `Usage: onceward inflight (-redis URL | -sql DSN) [flags]

Lists the keys in flight, oldest claim first: by their IDs, for stores keep no keys. A lease
that has lapsed is listed, too: nobody has come for the key since.
` + listed + `
`,
	"uncertain": `Usage: onceward uncertain (-redis URL | -sql DSN) [flags]

Lists the keys of which somebody has to find out whether their effect has happened, oldest
claim first: by their IDs, for stores keep no keys. Settle them with resolve.
` + listed + `
`,
	"resolve": `Usage: onceward resolve KEY -done|-released -namespace NAME (-redis URL | -sql DSN) [flags]
       onceward resolve -id ID -done|-released (-redis URL | -sql DSN) [flags]

Says how the attempt of an uncertain key has ended: -done, its effect has happened, and
duplicates are skipped; -released, it has not and will not, and may run again. Ask the
downstream first. A key that is not uncertain is left alone.

Exit code: 0 it is settled; 1 the key is not uncertain, or the answer was no; 2 wrong flags,
or a server that cannot be reached or refuses; 130 interrupted.
`,
	"forget": `Usage: onceward forget KEY -namespace NAME (-redis URL | -sql DSN) [flags]
       onceward forget -id ID (-redis URL | -sql DSN) [flags]

Makes a key claimable again, whatever became of it: its effect runs once more when the
message comes again. A key that is in flight is refused.

Exit code: 0 it is forgotten; 1 it is in flight, there is none, or the answer was no; 2 wrong
flags, or a server that cannot be reached or refuses; 130 interrupted.
`,
}

// listed is what the commands that list say of how far they come.
const listed = `
In Redis that takes a look at every key of the database, those of others among them: a second or
two for a million, in small steps that keep nobody else waiting. Ctrl-C ends it with what was
found so far; the last line then says that this is not all, and how many keys were looked at, and
so do "complete", "looked_at" and "of_about" of -json.

Exit code: 0 these are all, or -limit has ended the list (see the last line, or "complete" of
-json); 2 wrong flags, or a server that cannot be reached, refuses or fails: what was found before
that is listed; 130 interrupted: likewise.`

// raw are flags that need a second look.
type raw struct{ id, body, group, topic string }

// ParseOptions reads the flags of a command, which may stand before and behind KEY. flag.ErrHelp is
// returned after usage has been written to out; any other error names the flag.
func ParseOptions(command string, args []string, out io.Writer) (Options, error) {
	o := Options{Command: command}
	var r raw
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints errors
	o.flags(f, &r)
	var operands []string
	for rest := args; ; {
		if err := f.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				flags.Help(f, usages[command]+"\nFlags:\n", out)
			}
			return o, flags.Explain(f, err)
		}
		if rest = f.Args(); len(rest) == 0 {
			break
		}
		operands, rest = append(operands, rest[0]), rest[1:]
	}
	if err := o.name(operands, r); err != nil {
		return o, err
	}
	return o, o.check()
}

// named reports whether the command is about one key.
func (o *Options) named() bool { return o.Command != "inflight" && o.Command != "uncertain" }

func (o *Options) flags(f *flag.FlagSet, r *raw) {
	o.Flags(f)
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	if !o.named() {
		f.DurationVar(&o.Older, "older", 0, "list those alone whose claim is at least so `old`")
		f.IntVar(&o.Limit, "limit", defaultLimit, "stop after this `number` of keys")
		return
	}
	f.StringVar(&o.Namespace, "namespace", "", "`namespace` of the Deduper")
	f.StringVar(&o.Scope, "scope", "", "`scope` of the key")
	f.StringVar(&r.id, "id", "",
		"`ID` in place of a key, as lists, logs and answers have it: 32 hex digits, or the first of them, at least 4, where no other key begins so")
	f.StringVar(&o.Method, "method", "", "of an HTTP request: its `method`")
	f.StringVar(&o.URL, "url", "",
		"of an HTTP request: its `URL`, such as https://api.example.com/payments")
	f.StringVar(&o.Route, "route", "",
		"of an HTTP request: what Config.Route returns, in place of -url")
	f.StringVar(&o.GRPC, "grpc", "", "of a gRPC call: its full `method`, /package.Service/Method")
	f.StringVar(&o.Principal, "principal", "",
		"of an HTTP request or a gRPC call: the `account` that Scope returns (default that of Unscoped)")
	f.StringVar(&o.Name, "name", "",
		"of an HTTP request or a gRPC call: `Name` of the Config (default none)")
	f.StringVar(&r.group, "group", "", "of a Kafka message, whose id is KEY: the consumer `group`")
	f.StringVar(&r.topic, "topic", "",
		"of a Kafka message: its first `topic`, not the one that it is retried from")
	f.StringVar(&o.Provider, "webhook", "",
		"of a webhook, whose id is KEY: the `provider`, such as stripe")
	f.StringVar(&o.Endpoint, "endpoint", "", "of a webhook: `Endpoint` of the receiver's Config")
	f.StringVar(&r.body, "body", "",
		"of a webhook whose id is not signed, such as GitHub's: a `file` with its body; without KEY, unless the Config has Relabelled")
	f.StringVar(&o.EventType, "event-type", "", "of a webhook with -body: its `type`, such as push")
	switch o.Command {
	case "inspect":
		f.BoolVar(&o.Marks, "marks", false,
			"the table has marks (sqladapter.Ledger) instead of claims (sqlstore.Store)")
		f.BoolVar(&o.Result, "result", false, "show the beginning of the stored result")
	case "resolve":
		f.BoolVar(&o.Done, "done", false, "the effect has happened")
		f.BoolVar(&o.Released, "released", false, "the effect has not happened, and may run again")
		f.DurationVar(&o.Window, "window", 0,
			"window of the Deduper, for which -done is remembered; known of the layout compact")
	}
	if o.Command != "inspect" {
		f.DurationVar(&o.Hold, "hold", defaultHold,
			"hold of the Deduper: how long an owner from before can write nothing")
		f.BoolVar(&o.Yes, "yes", false, "do not ask")
	}
}

// name finds the ID that the command is about.
func (o *Options) name(operands []string, r raw) error {
	want := 0
	if o.named() && r.id == "" && r.body == "" {
		want = 1
	}
	switch {
	case len(operands) > max(want, 1) || len(operands) > want && r.body == "":
		return fmt.Errorf("unexpected argument %q", operands[want])
	case !o.named():
		return nil
	case len(operands) < want:
		return errors.New("KEY is missing, or -id")
	case r.id != "":
		return o.identify(r)
	case o.Namespace == "":
		return errors.New("-namespace is missing")
	}
	if len(operands) > 0 {
		o.typed = operands[0]
	}
	if r.body != "" {
		body, err := os.ReadFile(r.body)
		if err != nil {
			return fmt.Errorf("-body: %w", err)
		}
		o.Body = append([]byte{}, body...)
	}
	switch {
	case (r.group == "") != (r.topic == ""):
		return errors.New("-group and -topic go together")
	case r.group != "" && o.Scope != "":
		return errors.New("-group and -topic are the scope: leave -scope out")
	case r.group != "":
		o.Scope = kafkaadapter.ScopeOf(r.group, r.topic)
	}
	o.Key = o.typed
	var err error
	if o.ID, err = o.Resolve(); err != nil {
		var input *keyspec.Error
		if errors.As(err, &input) {
			field := "-" + strings.ToLower(input.Field)
			if field == "-key" {
				field = "KEY"
			}
			return fmt.Errorf("%s %s", field, input.Reason)
		}
	}
	return err
}

// leastPrefix is how many digits of an ID are enough to look for it.
const leastPrefix = 4

// identify reads -id.
func (o *Options) identify(r raw) error {
	switch {
	case o.Marks:
		return errors.New("-marks needs KEY: a mark is not looked up by its ID")
	case o.Namespace != "" || o.Scoped() || r.body != "" || r.group != "" || r.topic != "":
		return errors.New("-id has namespace and scope in it: leave -namespace, -scope and what else names a key out")
	}
	text := strings.ToLower(strings.TrimPrefix(r.id, keyname.URNPrefix))
	whole := 2 * len(o.ID)
	if len(text) < leastPrefix || len(text) > whole ||
		strings.Trim(text, "0123456789abcdef") != "" {
		return fmt.Errorf("-id is %q, and not 32 hex digits, or the first %d or more of them",
			r.id, leastPrefix)
	}
	if len(text) < whole {
		o.prefix = text
		return nil
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("-id is %q, and not 32 hex digits", r.id)
	}
	o.ID = driver.ID(b)
	return nil
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	if err := o.Check(); err != nil {
		return err
	}
	switch {
	case o.Marks && o.Server.Redis != "":
		return errors.New("-marks needs -sql")
	case !o.named() && o.Limit < 1:
		return fmt.Errorf("-limit is %d; it must be positive", o.Limit)
	case o.Older < 0:
		return fmt.Errorf("-older is %v; it must not be negative", o.Older)
	case o.Command == "resolve" && o.Done == o.Released:
		return errors.New("one of -done and -released is wanted")
	case o.Released && o.Window != 0:
		return errors.New("-window goes with -done")
	case o.Window < 0:
		return fmt.Errorf("-window is %v; it must not be negative", o.Window)
	case o.JSON && !o.Yes && (o.Command == "resolve" || o.Command == "forget"):
		return errors.New("-json needs -yes: a question is no JSON")
	case o.Hold < 0:
		return fmt.Errorf("-hold is %v; it must not be negative", o.Hold)
	}
	return nil
}

// what names the key for people, without line breaks or control characters of a terminal.
func (o *Options) what() string {
	if o.Namespace == "" {
		return "id " + hex.EncodeToString(o.ID[:])
	}
	what := fmt.Sprintf("%q of namespace %s", o.typed, o.Namespace)
	switch {
	case o.Provider != "":
		what += fmt.Sprintf(", webhook %q, endpoint %q", o.Provider, o.Endpoint)
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
