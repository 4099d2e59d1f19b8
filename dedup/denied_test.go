package dedup_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// denied is a store's error about a permission.
type denied struct{}

func (denied) Error() string { return "NOPERM" }
func (denied) Denied() bool  { return true }

// TestMissingPermissionIsNotWaitedFor: Complete is usually repeated until the lease is over. It is
// not when a permission is missing. It succeeds once the permission is given.
func TestMissingPermissionIsNotWaitedFor(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprint("batch=", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, func(c *dedup.Config) { c.LeaseTTL = time.Hour })
				claim, err := d.Claim(t.Context(), "k")
				require.NoError(t, err)
				sends := 0
				store.setBefore(func(c call) error {
					if c.method != "Finish" {
						return nil
					}
					sends++
					return fmt.Errorf("finish: %w", denied{})
				})
				complete := func() error {
					if batch {
						if errs := d.CompleteBatch(t.Context(),
							[]dedup.Completion{{Claim: claim}}); errs != nil {
							return errs[0]
						}
						return nil
					}
					return claim.Complete(t.Context(), nil)
				}
				begun := time.Now()
				err = complete()
				require.ErrorAs(t, err, &denied{})
				assert.True(t, dedup.OutcomeUnknown(err))
				assert.Less(t, time.Since(begun), time.Second)
				assert.Equal(t, 1, sends)
				store.setBefore(nil)
				assert.NoError(t, complete())
			})
		})
	}
}

// TestInvisibleCharacterSaysWhatToDo: foreign ids may contain characters that nobody can see.
func TestInvisibleCharacterSaysWhatToDo(t *testing.T) {
	d := newDeduper(t, dedup.Memory(1), nil)
	for key, rune := range map[string]string{"👩\u200d👧": "U+200D at byte 4",
		"a\u00a0b": "U+00A0 at byte 1", "\u200fa": "U+200F at byte 0"} {
		_, err := d.Claim(t.Context(), key)
		require.ErrorContains(t, err, rune)
		assert.ErrorContains(t, err, "SHA-256 in hexadecimal")
		assert.NotContains(t, err.Error(), key)
	}
}
