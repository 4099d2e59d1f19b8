package keys

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
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
	// as says for what KEY was taken, or by which detail a listed key was found.
	as string
	redisadapter.Entry
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
			o.candidates = append(o.candidates,
				candidate{as: "the ID in the text", Entry: redisadapter.Entry{ID: id}})
		}
		if o.prefix = o.clue.prefix; o.clue.line {
			return nil
		}
	}
	if o.Namespace == "" {
		return nil
	}
	providers, as := []string{o.Provider}, "the key itself"
	try := o.finds() && o.Endpoint != "" && o.Provider == ""
	switch {
	case try:
		providers = signed
	case o.Scoped():
		as = "the key with its scope"
	}
	for _, name := range providers {
		c := candidate{as: as, spec: o.Spec}
		if c.spec.Provider = name; try {
			c.as = "an event of " + name
		}
		var err error
		if c.ID, err = c.spec.Resolve(); err != nil {
			return err
		}
		o.candidates = append(o.candidates, c)
		if !try {
			o.take(&c)
		}
	}
	return nil
}

// take makes a candidate the key of the command.
func (o *Options) take(c *candidate) {
	o.ID, o.foundAs, o.Provider = c.ID, c.as, cmp.Or(c.spec.Provider, o.Provider)
}

// find looks the key up. The record is absent if there is none. In that case the key was never
// claimed, or KEY stands for another key, or for several keys.
func (s *store) find(ctx context.Context, o *Options) (dedup.Record, error) {
	hits, err := s.tryAll(ctx, o)
	if err == nil && len(hits) == 0 && s.useMarks(ctx, o) {
		hits, err = s.tryAll(ctx, o)
	}
	switch {
	case err != nil:
		return dedup.Record{}, err
	case len(hits) == 1:
		o.take(&hits[0])
		return hits[0].Record, nil
	case len(hits) > 1:
		return dedup.Record{}, several(hits)
	case o.prefix != "" && len(o.candidates) == 0:
		return s.complete(ctx, o)
	case !o.finds() || s.marks != nil:
		return dedup.Record{}, nil
	}
	return s.search(ctx, o)
}

// tryAll looks up all candidates in one call, and returns those that have a record.
func (s *store) tryAll(ctx context.Context, o *Options) (hits []candidate, err error) {
	ids := make([]driver.ID, len(o.candidates))
	for i := range ids {
		ids[i] = o.candidates[i].ID
	}
	if s.marks == nil && len(ids) > 0 {
		for i, a := range s.Store.Lookup(ctx, ids) {
			if a.Err != nil {
				return nil, a.Err
			}
			o.candidates[i].Record = a.Record
		}
	}
	for _, c := range o.candidates {
		as := c.as
		if s.marks != nil {
			as += ", as a mark"
			if c.Record, err = s.mark(ctx, &c.spec); err != nil {
				return nil, err
			}
		}
		found := c.Record.State != driver.StateAbsent
		if found {
			hits = append(hits, c)
		}
		o.looked = append(o.looked, Looked{as, hex.EncodeToString(c.ID[:]), found})
	}
	return hits, nil
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
	s.marks, s.Name = m, s.Name+" marks"
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
	found, all, err := s.scan(ctx, o, false, nil)
	switch {
	case err != nil:
		return dedup.Record{}, err
	case len(found) == 0 && all:
		more := ""
		if s.Layout == redisadapter.Compact {
			more = "; a key that is done cannot be found by a prefix in this layout"
		}
		return dedup.Record{}, fmt.Errorf("no key in the store has an ID that begins with %s%s: %w",
			o.prefix, more, errNo)
	case len(found) == 1 && all:
		return s.listed(ctx, o, &found[0])
	case all:
		return dedup.Record{}, fmt.Errorf("the beginning of the ID: %w", several(found))
	}
	return dedup.Record{}, fmt.Errorf("the keys of this store are too many to know whether %s is the beginning of one ID alone: give all of it\n%s: %w", o.prefix, candidates(found), errNo)
}

// several is the error when more than one key fits.
func several(found []candidate) error {
	return fmt.Errorf("%d keys fit: look with --id\n%s: %w", len(found), candidates(found), errNo)
}

// listed takes a key that was listed, and reads its record.
func (s *store) listed(ctx context.Context, o *Options, c *candidate) (dedup.Record, error) {
	o.take(c)
	a := s.Store.Lookup(ctx, []driver.ID{c.ID})[0]
	return a.Record, a.Err
}

// search looks for KEY in the labels, IDs and origins of the listed keys. It first searches the
// keys past their point of no return, which are in an index, and then the others, for a limited
// time.
func (s *store) search(ctx context.Context, o *Options) (dedup.Record, error) {
	if o.typed == "" && o.clue.at == nil {
		return dedup.Record{}, nil
	}
	labels := o.clue.labels
	if !o.clue.line {
		labels = append(labels, o.typed)
	}
	looking, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	for _, irreversible := range []bool{true, false} {
		found, all, err := s.scan(looking, o, irreversible, labels)
		if err != nil {
			return dedup.Record{}, err
		}
		which := "some of the keys"
		switch {
		case irreversible:
			which = "the keys past their point of no return"
		case all:
			which = "all keys that are listed"
		}
		o.looked = append(o.looked, Looked{As: "labels, IDs and origins of " + which,
			Found: len(found) > 0})
		switch {
		case len(found) > 0 && o.Scoped() && o.clue.at == nil: // the flags name another key
			o.notKnown = append(o.notKnown,
				"whether one of these is meant; look with --id:\n"+candidates(found))
			return dedup.Record{}, nil
		case len(found) > 1:
			return dedup.Record{}, several(found)
		case len(found) == 1:
			return s.listed(ctx, o, &found[0])
		case !irreversible && !all:
			o.notKnown = append(o.notKnown, fmt.Sprintf(
				"the labels of all keys: the search ended after %v, and the store has more",
				searchTime))
		}
	}
	return dedup.Record{}, nil
}

// fits names the detail by which a listed key fits KEY, or is empty: its position, its ID, or a
// label that begins or ends with one of the given ones. Adapters put the key at the end.
func (o *Options) fits(e *redisadapter.Entry, labels []string) string {
	labeled := func(text string) bool {
		return text != "" && (strings.HasPrefix(e.Record.Label, text) ||
			strings.HasSuffix(e.Record.Label, " "+text))
	}
	switch {
	case o.clue.at.of(&e.Record, o.group):
		return "the position of its message"
	case o.prefix != "" && strings.HasPrefix(hex.EncodeToString(e.ID[:]), o.prefix):
		return "the beginning of its ID"
	case slices.ContainsFunc(labels, labeled):
		return "its label"
	}
	return ""
}

// listedStates are all states in which a key can be listed.
var listedStates = []driver.State{driver.StateInProgress, driver.StateSucceeded, driver.StateFailed,
	driver.StateReleased, driver.StateUncertain}

// scan reads keys of the store until enough of them fit KEY or the labels, or ctx ends. It returns
// complete = false if it did not reach the end.
func (s *store) scan(ctx context.Context, o *Options, irreversible bool,
	labels []string) (found []candidate, complete bool, err error) {
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
		for _, e := range p.Entries {
			as := o.fits(&e, labels)
			if as == "" || seen[e.ID] {
				continue
			}
			seen[e.ID] = true
			found = append(found, candidate{as: as, Entry: e})
			if len(found) == maxCandidates {
				return found, false, nil
			}
		}
		if cursor = p.Cursor; cursor == "" {
			return found, true, nil
		}
	}
}

// candidates lists keys, one a line.
func candidates(found []candidate) string {
	lines := make([]string, len(found))
	for i, c := range found {
		lines[i] = "  " + hex.EncodeToString(c.ID[:]) + "  " + c.Record.State.String()
		if c.Record.Label != "" {
			lines[i] += "  " + strconv.Quote(c.Record.Label)
		}
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
	if s.Layout == redisadapter.Compact {
		all = append(all, "labels of keys that are done: the layout compact keeps none")
	}
	return all
}

// none returns an error that says that there is no record, where the command looked, and what it
// could not know.
func (s *store) none(o *Options) error {
	more := ""
	if len(o.looked) > 0 {
		more = "\nLooked at:\n  " + strings.Join(places(o.looked), "\n  ")
	}
	if missing := s.missing(o); len(missing) > 0 {
		more += "\nNot known:\n  " + strings.Join(missing, "\n  ")
	}
	return fmt.Errorf("no record of %s was found: %w%s", o.what(), errNone, more)
}

// places describes where the command looked.
func places(looked []Looked) (all []string) {
	for _, l := range looked {
		all = append(all, strings.TrimSpace(l.As+"  "+l.ID))
	}
	return all
}
