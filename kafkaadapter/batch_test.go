package kafkaadapter

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func TestAllOrNothing(t *testing.T) {
	var input *dedup.InputError
	for name, row := range map[string]struct {
		ids       []string
		err       error // of f
		given     []string
		noID, bad []int
		permanent bool // for the usable ones
	}{
		"done": {ids: []string{"a", "b"}, given: []string{"a", "b"}},
		"fails": {ids: []string{"a", "b"}, err: errBroken,
			given: []string{"a", "b"}},
		"without ids": {ids: []string{"", "a", "b\x00", "b", ""},
			given: []string{"a", "b"}, noID: []int{0, 4}, bad: []int{2}},
		"fails without ids": {ids: []string{"", "a", "b"}, err: errBroken,
			given: []string{"a", "b"}, noID: []int{0}},
		"nothing left": {ids: []string{"", strings.Repeat("x", 256)}, noID: []int{0},
			bad: []int{1}},
		"for good, alone": {ids: []string{"a"}, err: dedup.Permanent(errBroken),
			given: []string{"a"}, permanent: true},
		"for good, alone in effect": {ids: []string{"a", ""}, err: dedup.Permanent(errBroken),
			given: []string{"a"}, noID: []int{1}, permanent: true},
		"for good, but whose": {ids: []string{"a", "b"}, err: dedup.Permanent(errBroken),
			given: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var ms []*Message
			for _, id := range row.ids {
				ms = append(ms, &Message{ID: id})
			}
			var given []string
			errs := AllOrNothing(func(_ context.Context, ms []*Message) error {
				assert.Nil(t, given, "called again")
				given = IDs(ms)
				return row.err
			})(t.Context(), ms)
			assert.Equal(t, row.given, given)
			require.Len(t, errs, len(row.ids))
			for i, err := range errs {
				bad := slices.Contains(row.bad, i)
				switch {
				case slices.Contains(row.noID, i):
					require.ErrorIs(t, err, ErrNoID)
				case bad:
					require.ErrorAs(t, err, &input)
				default:
					assert.Equal(t, row.err == nil, err == nil, "message %d: %v", i, err)
				}
				permanent := row.permanent || bad || slices.Contains(row.noID, i)
				assert.Equal(t, permanent, dedup.IsPermanent(err), "message %d: %v", i, err)
			}
		})
	}
	assert.Nil(t, AllOrNothing(nil), "a driver must see that there is no handler")
}
