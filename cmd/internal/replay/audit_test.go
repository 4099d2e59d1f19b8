package replay

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Each sent message is a line of the audit, and an object of --json. A dry run writes no audit.
func TestAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(2)
	var out, errOut bytes.Buffer
	r.main(t.Context(), &out, &errOut, cli.Done, "-n", "--json")
	assert.NotContains(t, errOut.String(), "msg=audit")
	out.Reset()
	r.main(t.Context(), &out, &errOut, cli.Done, "--json")
	assert.Equal(t, 2, strings.Count(errOut.String(), " is=sent\n"), errOut.String())
	assert.Contains(t, errOut.String(), "change=replay topic=orders.dead group=onceward-replay sent=2")
	d := json.NewDecoder(&out)
	for range 2 {
		var l View
		require.NoError(t, d.Decode(&l))
		assert.Equal(t, fateSent, l.Fate)
	}
	var counts map[string]any
	require.NoError(t, d.Decode(&counts))
	assert.Equal(t, map[string]any{"dry_run": false, "sent": 2.0, "settled": 0.0, "left": 0.0,
		"unwanted": 0.0}, counts)
}
