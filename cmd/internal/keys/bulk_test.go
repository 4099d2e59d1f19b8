package keys

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup/driver"
)

// One question resolves many keys, and each key has a line in the log. A dry run changes nothing.
func TestResolveAll(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t) // one is uncertain
			r.doubt("second")
			r.wants(cli.Done, "resolve --all --released --dry-run", "2 uncertain",
				"would become released; nothing is changed")
			r.wants(cli.No, "resolve --all --released", "effects of these 2 keys not happened",
				"not confirmed")
			for _, key := range []string{"doubtful", "second"} {
				assert.Equal(t, driver.StateUncertain, r.stateOf(key))
			}
			r.wants(cli.Done, "resolve --all --done --window 24h --older 1h --yes", "0 uncertain",
				"0 are succeeded")
			r.wants(cli.Done, "resolve --all --done --window 24h --label order --yes", "0 are succeeded")
			r.wants(cli.Usage, "resolve --all --done --yes", "--window is missing")
			code, out, errOut := r.run(nil, strings.Fields(
				"resolve --all --done --window 24h --json --yes --namespace shop")...) // as a setting
			require.Equal(t, cli.Done, code, errOut)
			var b Bulk
			require.NoError(t, json.Unmarshal([]byte(out), &b))
			for _, v := range b.Keys {
				assert.Contains(t, errOut, `key="id `+v.ID+`"`)
			}
			assert.Equal(t, 2, b.Resolved)
			assert.Empty(t, b.Left)
			assert.Equal(t, 2, strings.Count(errOut, "msg=audit"), errOut)
			assert.Equal(t, 2, strings.Count(errOut, "was=uncertain is=succeeded"), errOut)
			for _, key := range []string{"doubtful", "second"} {
				assert.Equal(t, driver.StateSucceeded, r.stateOf(key))
			}
			assert.Equal(t, driver.StateInProgress, r.stateOf("flying"))
		})
	}
}

// If somebody settles a key while the question waits, it is left alone. The others are resolved.
func TestResolveAllMoved(t *testing.T) {
	r := twoStores["sqlite"](t)
	r.doubt("second")
	in := &answer{before: func() {
		r.wants(cli.Done, "resolve second --namespace shop --done --window 24h --yes")
	}}
	code, out, errOut := r.run(in, "resolve", "--all", "--released")
	assert.Equal(t, cli.No, code)
	assert.Contains(t, out, "1 are released")
	assert.Contains(t, errOut, "has changed since it was listed")
	assert.Equal(t, driver.StateSucceeded, r.stateOf("second"))
	assert.Equal(t, driver.StateReleased, r.stateOf("doubtful"))
}

// The count of uncertain keys is exact, whatever --limit lists: the oldest.
func TestUncertainCountsAll(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t)
			for _, key := range []string{"a", "b", "c"} {
				r.doubt(key)
			}
			r.wants(cli.Done, "uncertain --limit 2", "4 uncertain, and the 2 oldest are listed")
			l := parse(t, r.wants(cli.Done, "uncertain --limit 2 --json"))
			assert.Equal(t, 4, l.Exact)
			assert.Len(t, l.Keys, 2)
			assert.True(t, l.More)
		})
	}
}

// Attempts in flight past their point of no return are listed and counted from an index. This works
// even if there is no time to take a sample.
func TestInflightPastNoReturn(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t)
			id, rec := r.claim("charging", driver.Token{9})
			a := r.store.Renew(t.Context(), []driver.Renewal{{ID: id, Token: driver.Token{9},
				Fence: rec.Fence, Lease: time.Minute, Hold: time.Hour, Window: testWindow,
				Irreversible: true}})[0]
			require.True(t, a.Held)
			l := parse(t, r.wants(cli.Done, "inflight --json --for 1ns"))
			assert.Equal(t, 1, l.Exact)
			require.NotEmpty(t, l.Keys)
			r.wants(cli.Done, "inflight", "2 in flight; past their point of no return exactly 1", "no   ")
			if name == "redis" {
				assert.False(t, l.Complete)
				r.wants(cli.Done, "inflight --for 1ns", "1 in flight so far, and THE LIST IS NOT COMPLETE")
			}
		})
	}
}
