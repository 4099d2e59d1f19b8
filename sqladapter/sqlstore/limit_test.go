package sqlstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestStoreRefusesAClaimWithALargerResult: otherwise the store would refuse the record of the
// effect at every delivery.
func TestStoreRefusesAClaimWithALargerResult(t *testing.T) {
	s := &Store{maxResult: 1000}
	require.NoError(t, s.checkClaim(&driver.ClaimRequest{Lease: time.Second, ResultLimit: 1000}))
	var input *dedup.InputError
	require.ErrorAs(t, s.checkClaim(&driver.ClaimRequest{Lease: time.Second, ResultLimit: 1001}),
		&input)
	assert.Equal(t, "ResultLimit", input.Field)
}
