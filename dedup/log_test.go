package dedup_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// losing is a store that keeps the tokens it was given and holds no claim.
type losing struct {
	dedup.Store
	tokens []dedup.Token
}

func (s *losing) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	for _, r := range reqs {
		s.tokens = append(s.tokens, r.Token)
	}
	return s.Store.Claim(ctx, reqs)
}

func (s *losing) Renew(_ context.Context, changes []dedup.Change) []dedup.Answer {
	return make([]dedup.Answer, len(changes))
}

// S-16, S-19: logs and errors name a key by the beginning of its digest. They contain no text of a
// client, which could be secret or look like a line of its own. They contain no token, by which a
// claim could be ended.
func TestS16LogsHoldNeitherKeysNorTokens(t *testing.T) {
	const key, scope, label = `evil" level=ERROR msg="forged`, "4111 1111 1111 1111", "ada@example.org"
	var log bytes.Buffer
	store := &losing{Store: dedup.Memory(10)}
	d, err := dedup.New(store, dedup.Config{
		Namespace: "s16", Window: time.Hour, LeaseTTL: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	do := func(key string, fn func(context.Context) (func(), error)) error {
		_, err := dedup.Do(t.Context(), d, key, fn, dedup.WithScope(scope), dedup.WithLabel(label))
		return err
	}
	lost := do(key, func(ctx context.Context) (func(), error) { return nil, dedup.Danger(ctx) })
	unkept := do(key+"2", func(context.Context) (func(), error) { return func() {}, nil }) // no JSON
	var errs []error
	for _, bad := range []string{key + "\n", key + "\xff", strings.Repeat(key, 20)} {
		err := do(bad, func(context.Context) (func(), error) { return nil, nil })
		var input *dedup.InputError
		if !errors.As(err, &input) {
			t.Errorf("%q: %v", bad, err)
		}
		errs = append(errs, err)
	}
	if !errors.Is(lost, dedup.ErrLeaseLost) || unkept != nil || strings.Count(log.String(), "key_id=") < 2 {
		t.Fatalf("%v, %v; logged:\n%s", lost, unkept, &log)
	}
	for _, k := range []string{key, key + "2"} {
		id, err := dedup.NewID("s16", scope, k)
		if full := "key_id=" + hex.EncodeToString(id[:]); err != nil || !strings.Contains(log.String(), full) {
			t.Errorf("%v: no %s in\n%s", err, full, &log)
		}
	}
	said := log.String() + fmt.Sprint(append(errs, lost))
	secrets := []string{"forged", "4111", "ada@"}
	for _, token := range store.tokens {
		secrets = append(secrets, string(token[:8]), hex.EncodeToString(token[:8]), base64.StdEncoding.EncodeToString(token[:6]), strings.Trim(fmt.Sprintf("%d", token[:4]), "[]"))
	}
	if len(store.tokens) < 2 {
		t.Fatal("the store has seen no tokens")
	}
	for _, secret := range secrets {
		if strings.Contains(said, secret) {
			t.Errorf("%q is in\n%s", secret, said)
		}
	}
}
