package webhook_test

import (
	"context"
	"encoding/hex"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// An operator who knows an event finds its record, whether its id is signed or not.
func TestRecordIsFoundFromAnEvent(t *testing.T) {
	for name, test := range map[string]struct {
		identity webhook.Identity
		cfg      webhook.Config
		key      webhook.RecordKey
		label    string
	}{
		"signed": {webhook.Identity{ID: "evt_A", Type: "paid", Signed: true}, webhook.Config{},
			webhook.RecordKey{EventID: "evt_A"}, "sender billing evt_A"},
		"unsigned": {webhook.Identity{ID: "7", Type: "push"}, webhook.Config{},
			webhook.RecordKey{Body: []byte("{}"), EventType: "push"}, "sender billing 7"},
		"relabelled": {webhook.Identity{ID: "7", Type: "push"}, webhook.Config{Relabelled: true},
			webhook.RecordKey{Body: []byte("{}"), EventType: "push", EventID: "7"},
			"sender billing 7"},
	} {
		t.Run(name, func(t *testing.T) {
			store := dedup.Memory(100)
			run := claimed(t, store, func(c *dedup.Config) { c.Labels = true })
			p := webhook.Provider{Name: "sender", Horizon: 1,
				Verify: func(*webhook.Message) (webhook.Identity, error) {
					return test.identity, nil
				}}
			e := newEndpoint(t, run, p, func(ctx context.Context, _ *webhook.Delivery) error {
				_ = dedup.MarkIrreversible(ctx)
				return assert.AnError
			}, test.cfg)
			send(e, request(http.Header{}, "{}"))
			w := send(e, request(http.Header{}, "{}"))
			k := test.key
			k.Provider, k.Endpoint = "sender", "billing"
			id, err := k.ID("webhook")
			require.NoError(t, err)
			rec := store.Lookup(t.Context(), []driver.ID{id})[0].Record
			assert.Equal(t, driver.StateUncertain, rec.State)
			assert.Equal(t, test.label, rec.Label)
			assert.Equal(t, 409, w.Code)
			assert.Contains(t, w.Body.String(),
				`"instance":"urn:onceward:`+hex.EncodeToString(id[:])+`"`)
			assert.Contains(t, e.log.String(), "uncertain")
			assert.Contains(t, e.log.String(), "key_id="+hex.EncodeToString(id[:]))
		})
	}
}
