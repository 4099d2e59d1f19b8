package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// ErrOtherLayout is an error of [New]: the prefix belongs to stores with other settings. The
// text names what is set, what Options ask for, and the way out, layered.Moving.
var ErrOtherLayout = errors.New("redisadapter: the keys have another layout")

// The layout record is one key of a prefix, without an expiry, written by the first New. It holds
// the settings that decide where a key is found, and what is kept of it. Its value is text: this
// line, then a line "name value" for each setting, in the order of settings. A version that does
// not know a setting refuses the record.
const layoutHeader = "onceward layout 1"

// maxLayout is far above the length of any layout record, in bytes: a longer value is foreign, and
// is not repeated in an error.
const maxLayout = 1024

// layoutKey is one key of a deployment, like forgetsKey.
func (s *Store) layoutKey() string { return s.opts.Prefix + ":layout" }

// earlier maps the name of a former layout to the present layout that has the same records.
var earlier = strings.NewReplacer("\nlayout rich\n", "\nlayout full\n",
	"\nlayout seen_only\n", "\nlayout full\n", "\nlayout mixed\n", "\nlayout compact\n")

// settings are what all processes that share a prefix must agree on.
func (s *Store) settings() string {
	lines := []string{layoutHeader, "layout " + s.opts.Layout.String()}
	if s.opts.WrappedBy != "" {
		lines = append(lines, "wrapped_by "+s.opts.WrappedBy)
	}
	if s.buckets != nil {
		lines = append(lines, s.buckets.Settings()...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// agree compares the settings with those of the prefix, or makes them its settings when it
// has none: a new deployment, or a server that has lost what it had. It costs one round trip, and a
// second for the first New of a prefix.
func (s *Store) agree(ctx context.Context) error {
	client, mine := s.client(), s.settings()
	stored, err := client.Get(ctx, s.layoutKey()).Result()
	if errors.Is(err, redis.Nil) {
		// When several processes try, the settings of the first stay; nil says that ours were
		// written. A SET that is sent again because its reply was lost finds its own settings.
		stored, err = client.Do(ctx, "set", s.layoutKey(), mine, "nx", "get").Text()
		if errors.Is(err, redis.Nil) {
			return s.indexed(ctx) // there are no records
		}
	}
	if err != nil {
		return fmt.Errorf("redisadapter: layout of keys %q at %s: %w", s.opts.Prefix+":*",
			wire.Address(client), wire.Wrap("layout", err))
	}
	if difference := settingsDiffer(earlier.Replace(stored), mine); difference != "" {
		return fmt.Errorf("%w: of keys %q at %s, %s; open them with the settings they have, or choose another Options.Prefix and go "+
			"there with layered.Moving (\"Changing settings on live data\" in the package comment)",
			ErrOtherLayout, s.opts.Prefix+":*", wire.Address(client), difference)
	}
	return nil
}

// settingsDiffer says what is stored, and what is asked for, where the two differ.
func settingsDiffer(stored, mine string) string {
	if stored == mine {
		return ""
	}
	header, rest, _ := strings.Cut(stored, "\n")
	if header != layoutHeader || len(stored) > maxLayout {
		return fmt.Sprintf("this version cannot read the record of the layout (%d bytes)",
			len(stored))
	}
	have, want := parseSettings(rest), parseSettings(mine[len(layoutHeader)+1:])
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(union(have, want))) {
		if have[name] != want[name] {
			differ = append(differ, fmt.Sprintf("%s is %s, and Options say %s", orNone(name),
				orNone(have[name]), orNone(want[name])))
		}
	}
	if differ == nil { // the same settings, but not as this version writes them
		return fmt.Sprintf("the record of the layout is damaged (%q)", stored)
	}
	return strings.Join(differ, "; ")
}

func union(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// orNone quotes text that might be foreign, so that it cannot forge a line of a log.
func orNone(value string) string {
	if value == "" {
		return "not set"
	}
	return strings.Trim(strconv.Quote(value), `"`)
}

// parseSettings reads the record of a layout without its header.
func parseSettings(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		m[name] = value
	}
	return m
}
