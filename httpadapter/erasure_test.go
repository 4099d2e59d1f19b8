package httpadapter_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// S-11: the principal of an account contains a secret. When the secret is deleted, the account's
// records are erased: nobody finds them, and an attacker with the store, all keys of Seal and the
// account's name cannot open one. docs/reference/security.md promises this of erasure.
func TestS11ErasedAccountIsOutOfReach(t *testing.T) {
	secrets := map[string]string{"acme": "NEFQ4VNXDPRLOB5CHQTS2GLCYM",
		"other": "Q7VYHJ3WC2K5MBE6UJ5D4XTPQA"}
	scope := func(r *http.Request) (string, error) {
		account := r.Header.Get("X-Account")
		if secrets[account] == "" {
			return "", nil
		}
		return account + "/" + secrets[account], nil
	}
	store := &noted{Store: dedup.Memory(10)}
	m := newMiddleware(t, newClaimed(t, newDeduperOver(t, store, nil)), scope, sealing(1))
	h := m.Handler(http.HandlerFunc(personal))
	wantAnswer(t, send(h, post("k", "")), 200, "ada@example.org", firstTime)
	wantAnswer(t, send(h, post("k", "", header("X-Account", "other"))), 200, "ada@example.org",
		firstTime)
	wantAnswer(t, send(h, post("k", "")), 200, "ada@example.org", replayed)

	delete(secrets, "acme")
	wantProblem(t, send(h, post("k", "")), 401, "no-principal", nil)
	wantAnswer(t, send(h, post("k", "", header("X-Account", "other"))),
		200, "ada@example.org", replayed)

	stored := func(context.Context, string, httpadapter.Effect,
		dedup.Request) (dedup.Result[[]byte], error) {
		return dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: store.results[0]}, nil
	}
	thief := newMiddleware(t, &fake{do: stored}, scope,
		sealing(1)).Handler(http.HandlerFunc(personal))
	for name, guess := range map[string]string{"another": "AAAAAAAAAAAAAAAAAAAAAAAAAA",
		"of the other": secrets["other"]} {
		secrets["acme"] = guess
		t.Run(name, func(t *testing.T) {
			wantProblem(t, send(thief, post("k", "")), 500, "response-unreadable",
				map[string]string{"Do-Not-Retry": "1"})
		})
	}
	secrets["acme"] = "NEFQ4VNXDPRLOB5CHQTS2GLCYM" // it was this one: the test could have failed
	wantAnswer(t, send(thief, post("k", "")), 200, "ada@example.org", nil)

	secrets["acme"] = "THENEXTSECRETOFACMEAAAAAAA"
	wantAnswer(t, send(h, post("k", "")), 200, "ada@example.org", firstTime)
}
