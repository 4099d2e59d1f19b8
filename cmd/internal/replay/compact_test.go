package replay

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// The layout Compact keeps a succeeded key as 8 bytes in a set, and a failure as Full does. Without
// the secret no record is found, so no message is sent.
func TestCompact(t *testing.T) {
	addr := servertest.Redis(t)
	const secret = "0123456789abcdef"
	t.Setenv("SECRET", secret)
	r := newRig(t)
	r.keep(addr, redisadapter.Options{Prefix: servertest.Prefix(t), Layout: redisadapter.Compact,
		Secret: []byte(secret), Window: window, ExpectedKeys: 1000})
	r.produce(3)
	broken := r.consume(true)
	r.wantConsumed(3)
	broken.stop()
	r.wantIn(r.replay(cli.Usage), "--secret-env is missing")
	r.flags = append(r.flags, "--secret-env", "SECRET")
	r.wantIn(r.replay(cli.Done), "record=failed", "3 sent, 0 processed since, 0 left")
	repaired := r.consume(false)
	r.wantConsumed(6)
	repaired.wantEffects(t, 3)
	r.wantIn(r.replay(cli.Done, "--group", "another", "--unrecorded"), "record=succeeded",
		"0 sent, 3 processed since, 0 left")
	assert.Len(t, r.ids(orders), 6)
}
