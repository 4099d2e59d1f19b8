package keys

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyspec"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

const (
	// searchTime bounds a search that the user has not asked for.
	searchTime = 3 * time.Second
	// maxCandidates is how many keys are listed at most when the user wants one.
	maxCandidates = 10
)

// signed are the providers whose signatures cover the id of an event. For them --webhook need not
// name the provider.
var signed = []string{"stripe", "standard-webhooks", "slack", "adyen", "mailgun", "paypal",
	"square", "twilio"}

// candidate is a key that the user may mean.
type candidate struct {
	as   string
	id   driver.ID
	spec keyspec.Spec // its key and scope; zero if only the ID is known
}

// Looked is a place where the command looked for a key.
type Looked struct {
	As    string `json:"as"`
	ID    string `json:"id,omitempty"`
	Found bool   `json:"found"`
}

// derive fills in all keys that KEY and the flags can stand for.
func (o *Options) derive() error {
	if o.finds() {
		o.clue = readClue(o.typed)
		for _, id := range o.clue.ids {
			o.candidates = append(o.candidates, candidate{as: "the ID in the text", id: id})
		}
		if o.prefix = o.clue.prefix; o.clue.line {
			return nil
		}
	}
	if o.Namespace == "" {
		return nil
	}
	specs := []candidate{{as: "the key itself", spec: o.Spec}}
	if o.Scoped() {
		specs[0].as = "the key with its scope"
	}
	if o.finds() && o.Endpoint != "" && o.Provider == "" {
		specs = nil
		for _, name := range signed {
			c := candidate{as: "an event of " + name, spec: o.Spec}
			c.spec.Provider = name
			specs = append(specs, c)
		}
	}
	for _, c := range specs {
		var err error
		if c.id, err = c.spec.Resolve(); err != nil {
			return err
		}
		o.candidates = append(o.candidates, c)
	}
	if len(specs) == 1 {
		o.take(&o.candidates[len(o.candidates)-1])
	}
	return nil
}

// take makes a candidate the key of the command.
func (o *Options) take(c *candidate) {
	o.ID, o.foundAs = c.id, c.as
	if c.spec.Provider != "" {
		o.Provider = c.spec.Provider
	}
}

// find looks the key up. The record is absent if there is none. In that case the key was never
// claimed, or KEY stands for another key, or for several keys.
func (s *store) find(ctx context.Context, o *Options) (dedup.Record, error) {
	hits, records, err := s.tryAll(ctx, o)
	if err == nil && len(hits) == 0 && s.useMarks(ctx, o) {
		hits, records, err = s.tryAll(ctx, o)
	}
	switch {
	case err != nil:
		return dedup.Record{}, err
	case len(hits) == 1:
		o.take(&o.candidates[hits[0]])
		return records[hits[0]], nil
	case len(hits) > 1:
		var found []redisadapter.Entry
		for _, i := range hits {
			found = append(found, redisadapter.Entry{
				ID: o.candidates[i].id, Record: records[i]})
		}
		return dedup.Record{}, several(len(hits), found)
	case o.prefix != "" && len(o.candidates) == 0:
		return s.complete(ctx, o)
	case !o.finds() || s.marks != nil:
		return dedup.Record{}, nil
	}
	return s.search(ctx, o)
}

// tryAll looks up all candidates in one call, and returns the indexes of those that have a record.
func (s *store) tryAll(ctx context.Context, o *Options) (hits []int, all []dedup.Record,
	err error) {
	if len(o.candidates) == 0 {
		return nil, nil, nil
	}
	ids := make([]driver.ID, len(o.candidates))
	for i := range ids {
		ids[i] = o.candidates[i].id
	}
	all = make([]dedup.Record, len(ids))
	if s.marks == nil {
		for i, a := range s.Lookup(ctx, ids) {
			all[i] = a.Record
			if a.Err != nil {
				return nil, nil, a.Err
			}
		}
	}
	for i := range all {
		c := &o.candidates[i]
		as := c.as
		if s.marks != nil {
			as += ", as a mark"
			if all[i], err = s.mark(ctx, &c.spec); err != nil {
				return nil, nil, err
			}
		}
		found := all[i].State != driver.StateAbsent
		if found {
			hits = append(hits, i)
		}
		o.looked = append(o.looked, Looked{as, hex.EncodeToString(c.id[:]), found})
	}
	return hits, all, nil
}

// useMarks switches to the database's table of marks, if it has one and the user did not ask for
// it.
func (s *store) useMarks(ctx context.Context, o *Options) bool {
	if s.db == nil || s.marks != nil || o.Namespace == "" || !o.finds() || o.clue.line {
		return false
	}
	m := s.ledger(ctx, o)
	if m == nil {
		return false
	}
	s.marks, s.name = m, s.name+" marks"
	return true
}

// ledger returns the Ledger of the database's table of marks, or nil.
func (s *store) ledger(ctx context.Context, o *Options) *sqladapter.Ledger {
	m, err := findMarks(ctx, s.db, sqladapter.Config{Dialect: o.Server.Dialect(),
		Namespace: cmp.Or(o.Namespace, "any"), Schema: o.Schema})
	if err != nil || !has(ctx, m, s.db) {
		return nil
	}
	return m
}

// complete finds the one key whose ID begins with the given prefix.
func (s *store) complete(ctx context.Context, o *Options) (dedup.Record, error) {
	found, all, err := s.scan(ctx, false, func(e *redisadapter.Entry) bool {
		return strings.HasPrefix(hex.EncodeToString(e.ID[:]), o.prefix)
	})
	switch {
	case err != nil:
		return dedup.Record{}, err
	case len(found) == 0 && all:
		more := ""
		if s.layout == redisadapter.Compact {
			more = "; a key that is done cannot be found by a prefix in this layout"
		}
		return dedup.Record{}, fmt.Errorf("no key in the store has an ID that begins with %s%s: %w",
			o.prefix, more, errNo)
	case len(found) == 1 && all:
		o.ID, o.foundAs = found[0].ID, "the beginning of its ID"
		return s.record(ctx, o.ID)
	case all:
		return dedup.Record{}, fmt.Errorf("the beginning of the ID: %w",
			several(len(found), found))
	}
	return dedup.Record{}, fmt.Errorf("the keys of this store are too many to know whether %s is the beginning of one ID alone: give all of it\n%s: %w", o.prefix, candidates(found), errNo)
}

// several is the error when more than one key fits.
func several(n int, found []redisadapter.Entry) error {
	return fmt.Errorf("%d keys fit: look with --id\n%s: %w", n, candidates(found), errNo)
}

// record reads the record of a key that was listed.
func (s *store) record(ctx context.Context, id driver.ID) (dedup.Record, error) {
	a := s.Lookup(ctx, []driver.ID{id})[0]
	return a.Record, a.Err
}

// search looks for KEY in the labels, IDs and origins of the listed keys. It first searches the
// keys past their point of no return, which are in an index, and then the others, for a limited
// time.
func (s *store) search(ctx context.Context, o *Options) (dedup.Record, error) {
	if o.typed == "" && o.clue.at == nil {
		return dedup.Record{}, nil
	}
	texts := o.clue.labels
	if !o.clue.line {
		texts = append(texts, o.typed)
	}
	fits := func(e *redisadapter.Entry) bool {
		for _, text := range texts {
			if labeled(e.Record.Label, text) {
				return true
			}
		}
		return o.clue.at.of(&e.Record, o.group) ||
			o.prefix != "" && strings.HasPrefix(hex.EncodeToString(e.ID[:]), o.prefix)
	}
	looking, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	for _, irreversible := range []bool{true, false} {
		found, all, err := s.scan(looking, irreversible, fits)
		if err != nil {
			return dedup.Record{}, err
		}
		o.looked = append(o.looked, Looked{As: searched(irreversible, all),
			Found: len(found) > 0})
		switch {
		case len(found) > 0 && o.Scoped() && o.clue.at == nil: // the flags name another key
			o.notKnown = append(o.notKnown,
				"whether one of these is meant; look with --id:\n"+candidates(found))
			return dedup.Record{}, nil
		case len(found) > 1:
			return dedup.Record{}, several(len(found), found)
		case len(found) == 1:
			o.ID, o.foundAs = found[0].ID, o.how(&found[0])
			return s.record(ctx, o.ID)
		case !irreversible && !all:
			o.notKnown = append(o.notKnown, fmt.Sprintf(
				"the labels of all keys: the search ended after %v, and the store has more",
				searchTime))
		}
	}
	return dedup.Record{}, nil
}

// labeled reports whether a label begins or ends with the text: adapters put the key at the end.
func labeled(label, text string) bool {
	return text != "" && (strings.HasPrefix(label, text) || strings.HasSuffix(label, " "+text))
}

// how names the detail of a key that the search has matched.
func (o *Options) how(e *redisadapter.Entry) string {
	switch {
	case o.clue.at.of(&e.Record, o.group):
		return "the position of its message"
	case o.prefix != "" && strings.HasPrefix(hex.EncodeToString(e.ID[:]), o.prefix):
		return "the beginning of its ID"
	}
	return "its label"
}

func searched(irreversible, all bool) string {
	switch {
	case irreversible:
		return "labels, IDs and origins of the keys past their point of no return"
	case all:
		return "labels, IDs and origins of all keys that are listed"
	}
	return "labels, IDs and origins of some of the keys"
}

// listedStates are all states in which a key can be listed.
var listedStates = []driver.State{driver.StateInProgress, driver.StateSucceeded, driver.StateFailed,
	driver.StateReleased, driver.StateUncertain}

// scan reads keys of the store until enough of them match, or ctx ends. It returns complete = false
// if it did not reach the end.
func (s *store) scan(ctx context.Context, irreversible bool,
	fits func(*redisadapter.Entry) bool) (found []redisadapter.Entry, complete bool, err error) {
	states := listedStates
	if irreversible {
		states = []driver.State{driver.StateInProgress, driver.StateUncertain}
	}
	seen := make(map[driver.ID]bool)
	for cursor := ""; ; {
		p, err := s.list(ctx, cursor, irreversible, states...)
		if err != nil {
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
				err = nil
			}
			return found, false, err
		}
		for i := range p.Entries {
			if e := p.Entries[i]; !seen[e.ID] && fits(&e) {
				seen[e.ID] = true
				if found = append(found, e); len(found) == maxCandidates {
					return found, false, nil
				}
			}
		}
		if cursor = p.Cursor; cursor == "" {
			return found, true, nil
		}
	}
}

// candidates lists keys, one a line.
func candidates(found []redisadapter.Entry) string {
	lines := make([]string, 0, len(found))
	for i := range found {
		line := "  " + hex.EncodeToString(found[i].ID[:]) + "  " + found[i].Record.State.String()
		if label := found[i].Record.Label; label != "" {
			line += "  " + strconv.Quote(label)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// scopes explains the flags that give a key its scope.
const scopes = `the scope: keys of HTTP requests, gRPC calls, tool calls, webhooks and messages have a scope, without which they are not found:
    of a request      --method METHOD --url URL [--principal ACCOUNT]   (--route with Config.Route)
    of a gRPC call    --grpc /package.Service/Method [--principal ACCOUNT]
    of an MCP call    --tool TOOL --name NAME [--principal ACCOUNT]
    of a webhook      --endpoint NAME [--webhook PROVIDER]
    of a message      --group GROUP --topic TOPIC   (--scope SCOPE with a Config.Scope)
    of a queue        --scope SCOPE   (NATS: CONSUMER/STREAM, Redis: GROUP/STREAM, RabbitMQ: QUEUE)
    of others         --scope SCOPE`

// missing lists what the command did not know about the key that it did not find.
func (s *store) missing(o *Options) []string {
	all := o.notKnown
	if o.Namespace == "" && o.id == "" {
		all = append(all, "the namespace of the Deduper: --namespace NAME")
	}
	if o.id == "" && !o.clue.line && !o.Scoped() {
		all = append(all, scopes)
	}
	if s.layout == redisadapter.Compact {
		all = append(all, "labels of keys that are done: the layout compact keeps none")
	}
	return all
}

// none returns an error that says that there is no record, where the command looked, and what it
// could not know.
func (s *store) none(o *Options) error {
	text := fmt.Sprintf("no record of %s was found: %v", o.what(), errNone)
	if len(o.looked) > 0 {
		text += "\nLooked at:"
	}
	for _, l := range o.looked {
		text += "\n  " + strings.TrimSpace(l.As+"  "+l.ID)
	}
	if missing := s.missing(o); len(missing) > 0 {
		text += "\nNot known:\n  " + strings.Join(missing, "\n  ")
	}
	return &noneError{text}
}

// noneError is errNone with a longer text.
type noneError struct{ text string }

// Error implements error.
func (e *noneError) Error() string { return e.text }

// Unwrap returns errNone.
func (*noneError) Unwrap() error { return errNone }
