package httpadapter_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// The stored records are found by scope and compared by fingerprint. If a version made these
// otherwise, it would find no old record, and every retry of that window would run again. These
// values may change only with a new version inside of them, and an entry in the CHANGELOG.
func TestScopeAndFingerprintStayAsTheyAre(t *testing.T) {
	var got dedup.Request
	run := &fake{do: func(_ context.Context, _ string, _ httpadapter.Effect,
		req dedup.Request) (dedup.Result[[]byte], error) {
		got = req
		return dedup.Result[[]byte]{}, errors.New("no")
	}}
	key := &httpadapter.FingerprintKey{Version: 7, Key: bytes.Repeat([]byte{7}, 32)}
	for _, row := range []struct {
		name, scope, fingerprint string
		cfg                      httpadapter.Config
	}{
		{"default", "-n-PBL5i8z3jJf_t4LvbBqKbWhOyMi70uligx4hd9KA",
			"01ff5ec31b6285b1555d907bb5e6c8abc9", httpadapter.Config{}},
		{"all", "qQVOifl-t0sTeqV3DO2NYs1caMB30AX2u-3a4N7tC5A", "9c197c133d4c0d51efab992193f4dc7a8e",
			httpadapter.Config{Name: "v1", FingerprintKey: key,
				FingerprintHeaders: []string{"X-A", "X-B"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMiddleware(t, run, byHeader, row.cfg)
			send(m.Handler(status(200)),
				post("k", `{"amount":1}`, target("/a%2Fb?x=1&y"), header("X-A", "1")))
			f := hex.EncodeToString(got.Fingerprint[:])
			assert.Equal(t, row.scope, got.Scope)
			assert.Equal(t, row.fingerprint, f)
		})
	}
}
