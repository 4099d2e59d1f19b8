package owned

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// The map record is one key of a prefix, which never expires. It has what all processes must agree
// on, and how many partitions each source has. It is a text: the header, a line "name value" for
// each setting in the order of mapSettings.lines, and a line for each source in the order of the
// sources' names:
//
//	source state version count before span_ms mapping "name"
//
// An unknown line, or a line that this version would write differently, makes the record
// unreadable, because we must not guess who owns what.
const mapHeader = "onceward owned map 1"

// maxMap bounds the record, in bytes: it has room for some ten thousand sources.
const maxMap = 1 << 20

// errMap reports that the map record is not in the form that this version writes.
var errMap = errors.New("the map record cannot be read by this version")

// mapRecord is what `P:map` holds.
type mapRecord struct {
	settings mapSettings
	sources  map[string]mapSource
}

// mapSettings must not differ between processes, nor ever change: they decide where marks are
// found.
type mapSettings struct {
	secret  string // 16 hex digits of a digest
	keyID   string
	window  int64 // ms
	hold    int64 // ms
	slices  int
	buckets int // of a generation
}

// mapSource is how the keys of one source are spread over partitions.
type mapSource struct {
	changing bool   // some partitions may not have been told yet: nothing is granted
	version  uint64 // one more with each change
	count    int32  // number of partitions
	before   int32  // number before the change: these have heads, the others get one
	span     time.Duration
	mapping  string
}

// settingOf names the option that decides each setting, for errors.
var settingOf = map[string]string{
	"secret": "Secret", "key_id": "KeyID", "window_ms": "Window", "hold_ms": "Hold",
	"slices": "Slices", "buckets": "ExpectedKeys",
}

func (m *mapSettings) lines() [][2]string {
	return [][2]string{
		{"secret", m.secret}, {"key_id", m.keyID},
		{"window_ms", strconv.FormatInt(m.window, 10)}, {"hold_ms", strconv.FormatInt(m.hold, 10)},
		{"slices", strconv.Itoa(m.slices)}, {"buckets", strconv.Itoa(m.buckets)},
	}
}

// String is the text that is stored.
func (m *mapRecord) String() string {
	var b strings.Builder
	b.WriteString(mapHeader + "\n")
	for _, line := range m.settings.lines() {
		b.WriteString(line[0] + " " + line[1] + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(m.sources)) {
		s := m.sources[name]
		state := "steady"
		if s.changing {
			state = "changing"
		}
		fmt.Fprintf(&b, "source %s %d %d %d %d %s %s\n", state, s.version, s.count, s.before,
			script.Millis(s.span), s.mapping, strconv.Quote(name))
	}
	return b.String()
}

// with returns the record with another line for a source.
func (m *mapRecord) with(name string, s mapSource) *mapRecord {
	next := &mapRecord{settings: m.settings, sources: maps.Clone(m.sources)}
	next.sources[name] = s
	return next
}

// readMap reads a record.
func readMap(text string) (*mapRecord, error) {
	if len(text) > maxMap {
		return nil, fmt.Errorf("%w: it has %d bytes", errMap, len(text))
	}
	header, rest, _ := strings.Cut(text, "\n")
	if header != mapHeader {
		return nil, fmt.Errorf("%w: it begins with %.40q", errMap, header)
	}
	m := &mapRecord{sources: make(map[string]mapSource)}
	for line := range strings.Lines(rest) {
		if err := m.read(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, fmt.Errorf("%w: %.80q", errMap, line)
		}
	}
	if m.String() != text {
		return nil, fmt.Errorf("%w: a line is missing, twice or damaged", errMap)
	}
	return m, nil
}

// read reads one line. A line that is missing, or out of order, shows when readMap compares the
// text with what it would write.
func (m *mapRecord) read(line string) (err error) {
	name, value, _ := strings.Cut(line, " ")
	s := &m.settings
	switch name {
	case "secret":
		s.secret = value
	case "key_id":
		s.keyID = value
	case "window_ms":
		s.window, err = strconv.ParseInt(value, 10, 64)
	case "hold_ms":
		s.hold, err = strconv.ParseInt(value, 10, 64)
	case "slices":
		s.slices, err = strconv.Atoi(value)
	case "buckets":
		s.buckets, err = strconv.Atoi(value)
	case "source":
		err = m.readSource(value)
	default:
		err = errMap
	}
	return err
}

func (m *mapRecord) readSource(text string) error {
	f := strings.SplitN(text, " ", 7)
	if len(f) != 7 {
		return errMap
	}
	name, err := strconv.Unquote(f[6])
	version, err1 := strconv.ParseUint(f[1], 10, 53)
	count, err2 := strconv.ParseInt(f[2], 10, 32)
	before, err3 := strconv.ParseInt(f[3], 10, 32)
	span, err4 := strconv.ParseInt(f[4], 10, 64)
	if err := errors.Join(err, err1, err2, err3, err4); err != nil {
		return err
	}
	if count < 1 || count > maxCount || before < 0 || before > count || span < 0 ||
		span > script.MaxMillis {
		return errMap
	}
	m.sources[name] = mapSource{
		changing: f[0] == "changing", version: version, count: int32(count), before: int32(before),
		span: script.FromMillis(span), mapping: f[5],
	}
	return nil
}

// differ returns the names of the settings that differ from the options, or "".
func (m *mapSettings) differ(mine *mapSettings) string {
	var all []string
	have, want := m.lines(), mine.lines()
	for i := range have {
		if have[i] != want[i] {
			all = append(all, fmt.Sprintf("%s is %.80q, and Options.%s makes it %.80q", have[i][0],
				have[i][1], settingOf[have[i][0]], want[i][1]))
		}
	}
	return strings.Join(all, "; ")
}
