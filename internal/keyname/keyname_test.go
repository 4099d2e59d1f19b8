package keyname

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

type run struct{}

func (run) Namespace() string { return "shop" }

func TestOf(t *testing.T) {
	id, err := driver.NewID("shop", "s", "k")
	require.NoError(t, err)
	name := Of(run{}, "s", "k")
	assert.Equal(t, hex.EncodeToString(id[:]), string(name))
	assert.Equal(t, "urn:onceward:"+hex.EncodeToString(id[:]), name.URN())
	assert.Equal(t, "key_id="+hex.EncodeToString(id[:]), name.Attr().String())
	assert.Empty(t, Of(struct{}{}, "s", "k").URN())
	assert.Empty(t, Of(run{}, "s", "").URN())
}

// Whatever a client sends, a claim takes the label that is made of it.
func TestEveryLabelIsTaken(t *testing.T) {
	d, err := dedup.New(dedup.Memory(1000),
		dedup.Config{Namespace: "shop", Window: time.Hour, LeaseTTL: time.Minute, Labels: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	parts := []string{"", "POST /payments", "k1", strings.Repeat("a", 64), strings.Repeat("ü", 40),
		"\xff\x00\n", "a\u200bb", strings.Repeat("€", 21) + "x", strings.Repeat("k", 255), "  "}
	for i, what := range parts {
		for j, key := range parts {
			label := Label(what, key)
			c, err := d.Claim(t.Context(), strings.Repeat("x", 1+i)+strings.Repeat("y", 1+j),
				func(r *dedup.Request) { r.Label = label })
			require.NoError(t, err, "%q of %q and %q", label, what, key)
			require.Equal(t, dedup.Acquired, c.Outcome)
		}
	}
	assert.Equal(t, "POST /payments k1", Label("POST /payments", "k1"))
	assert.Equal(t, "POST /v1/accou... 0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b6789abcdef",
		Label("POST /v1/accounts/7/payments", "0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b6789abcdef"))
}
