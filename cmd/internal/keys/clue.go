package keys

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
)

// clue is what a text reveals about a key. The text is an ID, the beginning of an ID, the position
// of a message, or a line of a log with some of these in it.
type clue struct {
	ids    []driver.ID
	labels []string
	at     *position
	// prefix is the text if it can only be the beginning of an ID.
	prefix string
	// line reports that the text contains more than a key would.
	line bool
}

// position is where a message is in Kafka.
type position struct {
	topic     string
	partition int32
	offset    int64
}

var (
	idInText    = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	labelInText = regexp.MustCompile(`\blabel"?[=:]\s*("(?:[^"\\]|\\.)*"|[^\s",}]+)`)
	// Each of the two has a topic, a partition and an offset; fields of a line have any order.
	whereInText = regexp.MustCompile(`^([\w.-]+)[/:](\d+)[/:@](\d+)$`)
	fieldInText = []*regexp.Regexp{
		regexp.MustCompile(`\btopic"?[=:]\s*"?([\w.-]+)`),
		regexp.MustCompile(`\bpartition"?[=:]\s*"?(\d+)`),
		regexp.MustCompile(`\boffset"?[=:]\s*"?(\d+)`),
	}
	prefixAlone = regexp.MustCompile(`^[0-9a-f]{4,31}$`)
)

// readClue reads a text, such as a line of slog or of JSON.
func readClue(text string) (c clue) {
	lower := strings.ToLower(text)
	alone := strings.TrimPrefix(lower, keyname.URNPrefix)
	if prefixAlone.MatchString(alone) {
		c.prefix = alone
		return c
	}
	for _, found := range idInText.FindAllString(lower, -1) {
		b, _ := hex.DecodeString(found) // as the expression says
		c.ids = append(c.ids, driver.ID(b))
	}
	for _, found := range labelInText.FindAllStringSubmatch(text, -1) {
		label := found[1]
		if plain, err := strconv.Unquote(label); err == nil {
			label = plain
		}
		if label != "" {
			c.labels = append(c.labels, label)
		}
	}
	c.at = readPosition(text)
	c.line = len(c.ids) > 0 && len(alone) != 2*len(driver.ID{}) || len(c.labels) > 0 ||
		c.at != nil && strings.ContainsAny(text, " {")
	return c
}

func readPosition(text string) *position {
	parts := whereInText.FindStringSubmatch(text)
	if parts == nil {
		parts = make([]string, 4)
		for i, in := range fieldInText {
			if found := in.FindStringSubmatch(text); found != nil {
				parts[i+1] = found[1]
			}
		}
	}
	partition, err := strconv.ParseInt(parts[2], 10, 32)
	offset, bad := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || bad != nil {
		return nil
	}
	return &position{parts[1], int32(partition), offset}
}

// of reports whether the message at this position made a record's newest claim. group may be empty.
func (p *position) of(r *driver.Record, group string) bool {
	return p != nil && r.Origin != (driver.Origin{}) && r.Origin.Partition == p.partition &&
		r.Origin.Offset == p.offset && (group == "" ||
		driver.Origin{Source: group + "/" + p.topic}.Digest() == r.Origin.Digest())
}
