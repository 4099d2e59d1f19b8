package dedup_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// losing is a store that keeps the tokens it was given and holds no claim.
type losing struct {
	dedup.Store
	tokens []driver.Token
}

func (s *losing) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	for _, r := range reqs {
		s.tokens = append(s.tokens, r.Token)
	}
	return s.Store.Claim(ctx, reqs)
}

func (s *losing) Renew(_ context.Context, renewals []driver.Renewal) []driver.Answer {
	return make([]driver.Answer, len(renewals))
}

// S-16, S-19: logs and errors name a key by the beginning of its digest. They contain no text of a
// client, which could be secret or look like a line of its own. They contain no token, by which a
// claim could be ended.
func TestS16LogsHoldNeitherKeysNorTokens(t *testing.T) {
	const key, scope, label = `evil" level=ERROR msg="forged`, "4111 1111 1111 1111",
		"ada@example.org"
	var log bytes.Buffer
	store := &losing{Store: dedup.Memory(10)}
	d, err := dedup.New(store, dedup.Config{
		Namespace: "s16", Window: time.Hour, LeaseTTL: time.Minute,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	do := func(key string, fn func(context.Context) (func(), error)) error {
		_, err := dedup.Do(t.Context(), d, key, fn, dedup.WithScope(scope),
			func(r *dedup.Request) { r.Label = label })
		return err
	}
	lost := do(key, func(ctx context.Context) (func(), error) {
		return nil,
			dedup.MarkIrreversible(ctx)
	})
	// no JSON
	unkept := do(key+"2", func(context.Context) (func(), error) { return func() {}, nil })
	var errs []error
	for _, bad := range []string{key + "\n", key + "\xff", strings.Repeat(key, 20)} {
		err := do(bad, func(context.Context) (func(), error) { return nil, nil })
		var input *dedup.InputError
		assert.ErrorAs(t, err, &input, bad)
		errs = append(errs, err)
	}
	require.ErrorIs(t, lost, dedup.ErrLeaseLost)
	require.NoError(t, unkept)
	require.GreaterOrEqual(t, strings.Count(log.String(), "key_id="), 2)
	for _, k := range []string{key, key + "2"} {
		id, err := driver.NewID("s16", scope, k)
		full := "key_id=" + hex.EncodeToString(id[:])
		require.NoError(t, err)
		assert.Contains(t, log.String(), full)
	}
	said := log.String() + fmt.Sprint(append(errs, lost))
	secrets := []string{"forged", "4111", "ada@"}
	for _, token := range store.tokens {
		secrets = append(secrets, string(token[:8]), hex.EncodeToString(token[:8]),
			base64.StdEncoding.EncodeToString(token[:6]),
			strings.Trim(fmt.Sprintf("%d", token[:4]), "[]"))
	}
	require.GreaterOrEqual(t, len(store.tokens), 2, "the store has seen no tokens")
	for _, secret := range secrets {
		assert.NotContains(t, said, secret, "%q is in\n%s", secret, said)
	}
}
