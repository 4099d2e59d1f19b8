package keys

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// searchTime bounds a search that nobody has asked for.
	searchTime = 3 * time.Second
	// maxCandidates is how many keys are named at most where one is wanted.
	maxCandidates = 10
)

// listedStates are all in which a key can be listed.
var listedStates = []driver.State{driver.StateInProgress, driver.StateSucceeded, driver.StateFailed,
	driver.StateReleased, driver.StateUncertain}

// search goes over the keys of the store until some fit, or ctx ends. complete is false when it has
// not come to the end.
func (s *store) search(ctx context.Context, fits func(*entry) bool) (found []entry, complete bool,
	err error) {
	if s.Store == nil {
		return nil, false, nil // marks are not listed
	}
	seen := make(map[driver.ID]bool)
	for cursor := ""; ; {
		p, err := s.list(ctx, cursor, listedStates...)
		if err != nil {
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
				err = nil
			}
			return found, false, err
		}
		for i := range p.entries {
			if e := p.entries[i]; !seen[e.id] && fits(&e) {
				seen[e.id] = true
				if found = append(found, e); len(found) == maxCandidates {
					return found, false, nil
				}
			}
		}
		if cursor = p.cursor; cursor == "" {
			return found, true, nil
		}
	}
}

// complete finds the one key whose ID begins with the prefix that was given.
func (s *store) complete(ctx context.Context, o *Options) error {
	if o.prefix == "" {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	found, all, err := s.search(looking, func(e *entry) bool {
		return strings.HasPrefix(hex.EncodeToString(e.id[:]), o.prefix)
	})
	switch {
	case err != nil:
		return err
	case len(found) == 0 && all:
		more := ""
		if s.layout == redisadapter.Compact {
			more = "; a key that is done cannot be found by a prefix in this layout"
		}
		return fmt.Errorf("no key in the store has an ID that begins with %s%s: %w", o.prefix,
			more, errNo)
	case len(found) == 1 && all:
		o.ID = found[0].id
		return nil
	case all:
		return fmt.Errorf("%d keys have an ID that begins with %s: give more of it\n%s: %w",
			len(found), o.prefix, candidates(found), errNo)
	}
	return fmt.Errorf("the keys of this store are too many to know whether %s is the beginning of one ID alone: give all of it\n%s: %w", o.prefix, candidates(found), errNo)
}

// candidates names keys, one a line.
func candidates(found []entry) string {
	lines := make([]string, 0, len(found))
	for i := range found {
		line := "  " + hex.EncodeToString(found[i].id[:]) + "  " + found[i].record.State.String()
		if label := found[i].record.Label; label != "" {
			line += "  " + strconv.Quote(label)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// none explains that there is no record: the key may have another name than the one that was given.
func (s *store) none(ctx context.Context, o *Options) error {
	text := "there is no record of " + o.what()
	if o.Namespace == "" || o.Scoped() {
		return fmt.Errorf("%s: %w", text, errNone)
	}
	hint := `
Keys of HTTP requests, gRPC calls, webhooks and Kafka messages have a scope, without which they are not found:
  of a request      --method METHOD --url URL [--principal ACCOUNT]   (--route ROUTE with a Config.Route)
  of a gRPC call    --grpc /package.Service/Method [--principal ACCOUNT]
  of a webhook      --webhook PROVIDER --endpoint NAME
  of a message      --group GROUP --topic TOPIC   (--scope SCOPE with a Config.Scope)
  of others         --scope SCOPE
`
	looking, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, _, err := s.search(looking, func(e *entry) bool {
		return o.typed != "" && strings.Contains(e.record.Label, o.typed)
	})
	if err == nil && len(found) > 0 {
		hint += fmt.Sprintf("These keys have %q in their labels; look with --id:\n%s\n", o.typed,
			candidates(found))
	}
	if s.marksToo(ctx, o) {
		hint += "The database also has a table of marks: look with --marks\n"
	}
	return fmt.Errorf("%s: %w%s", text, errNone, strings.TrimRight(hint, "\n"))
}
