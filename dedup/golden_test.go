package dedup

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

// A digest that this or a downstream system compares with one of an older version never changes
// unless it contains a version. With another fingerprint every retry is a Mismatch, and under
// another derived key a downstream runs the effect again.
func TestStoredDigestsNeverChange(t *testing.T) {
	id, err := driver.NewID("ns", "tenant", "order-4711")
	require.NoError(t, err)
	a := Attempt{claim: &Claim{id: id}}
	payload, empty, none := driver.FingerprintOf([]byte(`{"amount":1}`)), driver.FingerprintOf([]byte{}),
		driver.FingerprintOf(nil)
	for name, row := range map[string][2]string{
		"fingerprint": {hex.EncodeToString(payload[:]),
			"01783948277a9de07276aa1b7ecbe3bd87"},
		"fingerprint of no bytes": {hex.EncodeToString(empty[:]),
			"014bf5122f344554c53bde2ebb8cd2b7e3"},
		"fingerprint of nothing": {hex.EncodeToString(none[:]),
			"016e340b9cffb37a989ca544e6bb780a2c"},
		"downstream key": {a.DownstreamKey("stripe", "charge"),
			"u9jSziqZLs3uOuNnMm3GDA"},
		"downstream key, no reason": {a.DownstreamKey(), "nh2fj32V_vCg5SxX300GDA"},
	} {
		assert.Equal(t, row[1], row[0], name)
	}
}
