package redisadapter_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// compactOptions are the options of the layout records below.
func compactOptions(prefix string) redisadapter.Options {
	return redisadapter.Options{
		Prefix: prefix, Layout: redisadapter.Compact, Secret: []byte("0123456789abcdef"),
		Window: time.Hour, ExpectedKeys: 1e6,
	}
}

// forgetLayout removes the record from a shared server when the test ends.
func forgetLayout(t *testing.T, b redistest.Backend) {
	t.Cleanup(func() { b.Client.Del(t.Context(), b.Prefix+":layout") })
}

func wantOtherLayout(t *testing.T, b redistest.Backend, opts redisadapter.Options, want string) {
	t.Helper()
	_, err := redisadapter.New(t.Context(), b.Client, opts)
	require.ErrorIs(t, err, redisadapter.ErrOtherLayout, "error %v, want %q", err, want)
	for _, part := range []string{want, "Moving", b.Prefix} {
		assert.Contains(t, err.Error(), part, "error %v, want %q", err, part)
	}
}

// TestLayoutIsAgreed: if two processes put keys in different places, each effect would run once for
// each of them.
func TestLayoutIsAgreed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		compact := compactOptions(b.Prefix)
		edit := func(f func(*redisadapter.Options)) redisadapter.Options {
			o := compact
			f(&o)
			return o
		}
		forgetLayout(t, b)
		for range 2 {
			_, err := redisadapter.New(t.Context(), b.Client, compact)
			must(t, err)
		}
		for name, c := range map[string]struct {
			opts redisadapter.Options
			want string
		}{
			"layout": {redisadapter.Options{Prefix: b.Prefix},
				"layout is compact, and Options say full"},
			"window": {edit(func(o *redisadapter.Options) {
				o.Window = 2 * time.Hour
			}), "window_ms is 3600000, and Options say 7200000"},
			"shards": {edit(func(o *redisadapter.Options) { o.ExpectedKeys = 1e9 }), "shards is "},
			"secret": {edit(func(o *redisadapter.Options) {
				o.Secret = []byte("fedcba9876543210")
			}), "secret is "},
		} {
			t.Run(name, func(t *testing.T) { wantOtherLayout(t, b, c.opts, c.want) })
		}
		left := b.Client.PTTL(t.Context(), b.Prefix+":layout").Val()
		assert.EqualValues(t, -1, left, "the record expires in %v", left)
		kept := b.Client.Get(t.Context(), b.Prefix+":layout").Val()
		assert.NotContains(t, kept, string(compact.Secret), "the secret is in the record")
	})
}

// TestEarlierLayoutsAreOpened: earlier versions had four names for the two formats. Their records
// are accepted, if all other settings are the same.
func TestEarlierLayoutsAreOpened(t *testing.T) {
	for earlier, now := range map[string]redisadapter.Layout{"rich": redisadapter.Full,
		"seen_only": redisadapter.Full, "mixed": redisadapter.Compact,
		"compact": redisadapter.Compact} {
		b := redistest.Open(t, "miniredis")
		key := b.Prefix + ":layout"
		_, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, now))
		require.NoError(t, err)
		record := strings.Replace(b.Client.Get(t.Context(), key).Val(), now.String(), earlier, 1)
		for range 2 {
			require.NoError(t, b.Client.Set(t.Context(), key, record, 0).Err())
			_, err = redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, now))
			assert.NoError(t, err, earlier)
			assert.Equal(t, record, b.Client.Get(t.Context(), key).Val(), "it is left as it is")
		}
		other := layouts[1-now]
		wantOtherLayout(t, b, layoutOptions(b.Prefix, other),
			"layout is "+now.String()+", and Options say "+other.String())
		require.NoError(t, b.Client.Del(t.Context(), key).Err())
	}
}

// TestLayoutIsFirstComeFirstServed: of processes that start together, all those are refused that
// have other settings than the first.
func TestLayoutIsFirstComeFirstServed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		forgetLayout(t, b)
		var mu sync.Mutex
		opened := make(map[redisadapter.Layout]int)
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				layout := layouts[n%len(layouts)]
				_, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
				assert.False(t, err != nil && !errors.Is(err, redisadapter.ErrOtherLayout), err)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					opened[layout]++
				}
			})
		}
		all.Wait()
		assert.Equal(t, []int{6}, slices.Collect(maps.Values(opened)),
			"opened %v, want all six of one layout", opened)
	})
}

// TestLayoutThatCannotBeRead: it is refused and not replaced, because a later version, or a foreign
// program, may have written it.
func TestLayoutThatCannotBeRead(t *testing.T) {
	const full = "onceward layout 1\nlayout full\n"
	for name, c := range map[string]struct{ stored, want string }{
		"later version": {"onceward layout 2\nlayout rich\n", "this version cannot read the record of the layout"},
		"later setting": {full + "hash sha3\n", "hash is sha3, and Options say not set"},
		"empty":         {"", "this version cannot read the record of the layout"},
		"foreign":       {"hello", "this version cannot read the record of the layout"},
		"long": {full + strings.Repeat("x", 5000),
			"this version cannot read the record of the layout (5030 bytes)"},
		"truncated": {"onceward layout 1\n", "layout is not set, and Options say full"},
		"forges a line": {"onceward layout 1\nlayout rich\r\x1b[2J\n",
			`layout is rich\r\x1b[2J, and`},
		"without an end": {strings.TrimSuffix(full, "\n"), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Open(t, "miniredis")
			must(t, b.Client.Set(t.Context(), b.Prefix+":layout", c.stored, 0).Err())
			wantOtherLayout(t, b, redisadapter.Options{Prefix: b.Prefix}, c.want)
			now := b.Client.Get(t.Context(), b.Prefix+":layout").Val()
			assert.Equal(t, c.stored, now, "the record was replaced with %q", now)
		})
	}
	t.Run("another type", func(t *testing.T) {
		b := redistest.Open(t, "redis")
		forgetLayout(t, b)
		must(t, b.Client.RPush(t.Context(), b.Prefix+":layout", "hello").Err())
		_, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
		require.ErrorIs(t, err, driver.ErrUnreadable)
		assert.Contains(t, err.Error(), "layout of keys", "error %v", err)
	})
}

// TestLayoutIsWrittenAgain: after a flush other settings are accepted, because there are no keys
// that they could miss.
func TestLayoutIsWrittenAgain(t *testing.T) {
	mini, client := redistest.Mini(t)
	b := redistest.Backend{Client: client, Prefix: "ow"}
	_, err := redisadapter.New(t.Context(), client, compactOptions("ow"))
	must(t, err)
	mini.FlushAll()
	_, err = redisadapter.New(t.Context(), client, redisadapter.Options{})
	must(t, err)
	wantOtherLayout(t, b, compactOptions("ow"), "layout is full, and Options say compact")
}

// TestLayoutIsNotWrittenToAWrongServer: a server without our canary may be another one.
func TestLayoutIsNotWrittenToAWrongServer(t *testing.T) {
	mini, client := redistest.Mini(t)
	_, err := redisadapter.New(t.Context(),
		client, redisadapter.Options{Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour})
	assert.ErrorIs(t, err, redisadapter.ErrNoCanary, "error %v, keys %v", err, mini.Keys())
	assert.Empty(t, mini.Keys(), "error %v, keys %v", err, mini.Keys())
}
