package redisadapter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/compact"
)

// Servers store finished keys at these places. With another name, another member or another text of
// the layout no old key is found, and everything runs again. So the file is never changed, and
// another way to derive the places gets another layout record.
func TestGoldenPlaces(t *testing.T) {
	var got strings.Builder
	for _, layout := range []Layout{Full, Compact} {
		opts := Options{Prefix: "ns", Layout: layout}
		if layout == Compact {
			opts.Secret, opts.Window, opts.ExpectedKeys = []byte("0123456789abcdef"),
				72*time.Hour, 2500*compact.KeysPerBucket
		}
		s := newStore(nil, opts)
		fmt.Fprintf(&got, "%s\n%s", s.layoutKey(), s.settings())
		for _, key := range []string{"order-4711", "größer"} {
			id, err := driver.NewID("ns", "tenant", key)
			require.NoError(t, err)
			if layout != Compact {
				fmt.Fprintf(&got, "%s\n", s.engine.Key(id))
				continue
			}
			_, member := s.buckets.Place(id)
			fmt.Fprintf(&got, "%s %d %s\n",
				s.buckets.Bucket(id, time.UnixMilli(6926*opts.Window.Milliseconds())), member,
				s.engine.Key(id))
		}
	}
	want, err := os.ReadFile(filepath.Join("testdata", "places.golden"))
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String())
}

// FuzzSettingsDiffer: two settings are the same only if their texts are. So no process takes a
// damaged or newer record of a layout for its own.
func FuzzSettingsDiffer(f *testing.F) {
	opts := Options{Prefix: "ns", Layout: Compact, Secret: []byte("0123456789abcdef"),
		Window: time.Hour, ExpectedKeys: 1e6}
	mine := newStore(nil, opts).settings()
	for _, seed := range []string{
		mine, "", "\n", layoutHeader, mine[:len(mine)-1], mine + "\n", mine + mine,
		mine + "newer 1\n",
		strings.Replace(mine, "layout 1", "layout 2", 1),
		strings.Replace(mine, "compact", "mixed", 1),
		strings.Replace(mine, "\n", "\r\n", 1), mine + strings.Repeat("x", maxLayout),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stored string) {
		difference := settingsDiffer(stored, mine)
		require.Equal(t, stored == mine, difference == "", "%q: %q", stored, difference)
		require.False(t, strings.ContainsAny(difference, "\n\r\x00\x1b"),
			"%q puts more than a line into an error: %q", stored, difference)
	})
}
