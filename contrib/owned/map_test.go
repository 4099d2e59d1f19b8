package owned

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var goldenMap = mapRecord{
	settings: mapSettings{secret: "0123456789abcdef", keyID: "k1", window: 3600000, hold: 600000,
		slices: 4, buckets: 25},
	sources: map[string]mapSource{
		"group/topic": {version: 7, count: 12, before: 8, span: 70 * time.Minute,
			mapping: "murmur2"},
		"a \"quoted\"\n": {changing: true, version: 1, count: 1, mapping: "default"},
	},
}

const goldenMapText = `onceward owned map 1
secret 0123456789abcdef
key_id k1
window_ms 3600000
hold_ms 600000
slices 4
buckets 25
source changing 1 1 0 0 default "a \"quoted\"\n"
source steady 7 12 8 4200000 murmur2 "group/topic"
`

// TestMapRecord pins the format: processes of two versions read one record.
func TestMapRecord(t *testing.T) {
	assert.Equal(t, goldenMapText, goldenMap.String())
	m, err := readMap(goldenMapText)
	require.NoError(t, err)
	assert.Equal(t, goldenMap.settings, m.settings)
	assert.Len(t, m.sources, 2)
	for name, s := range goldenMap.sources {
		assert.Equal(t, s, m.sources[name], "%q is read", name)
	}
}

// TestMapRecordRefused prevents a record that was damaged, or that a later version has written,
// from being read in part: a source that is missed would be mapped anew, as if it had no marks.
func TestMapRecordRefused(t *testing.T) {
	replace := func(old, with string) string {
		require.Contains(t, goldenMapText, old, "no %q", old)
		return strings.Replace(goldenMapText, old, with, 1)
	}
	for name, text := range map[string]string{
		"nothing":         "",
		"another version": replace("map 1", "map 2"),
		"a setting more":  replace("slices 4", "slices 4\nfolds 2"),
		"a setting less":  replace("slices 4\n", ""),
		"a setting twice": replace("slices 4\n", "slices 4\nslices 4\n"),
		"another order":   replace("hold_ms 600000\nslices 4\n", "slices 4\nhold_ms 600000\n"),
		"a source twice": goldenMapText +
			goldenMapText[strings.Index(goldenMapText, "source steady"):],
		"another state":      replace("steady", "halted"),
		"a count of 0":       replace("7 12 8", "7 0 0"),
		"a count too large":  replace("7 12 8", "7 1048577 8"),
		"more before":        replace("7 12 8", "7 12 13"),
		"a negative before":  replace("7 12 8", "7 12 -1"),
		"a negative span":    replace("4200000", "-1"),
		"no span":            replace(" 4200000", ""),
		"a number with plus": replace("7 12 8", "+7 12 8"),
		"an open quote":      replace(`"group/topic"`, `"group/topic`),
		"another quote":      replace(`"group/topic"`, "`group/topic`"),
		"cut":                goldenMapText[:len(goldenMapText)-1],
		"too long":           goldenMapText + strings.Repeat("x", maxMap),
	} {
		_, err := readMap(text)
		assert.ErrorIs(t, err, errMap, "%s", name)
	}
}

// FuzzMapRecord holds the reader to what the writer writes.
func FuzzMapRecord(f *testing.F) {
	f.Add(goldenMapText)
	f.Add(strings.ReplaceAll(goldenMapText, "12", "9"))
	f.Add("onceward owned map 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := readMap(text)
		if err != nil {
			return
		}
		assert.Equal(t, text, m.String(), "read and written")
	})
}
