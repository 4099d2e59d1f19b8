package console

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/keyname"
)

// The parts of a request, a webhook or a call that an operator knows are enough to find its record.
func TestSearchByWhatWasSent(t *testing.T) {
	r := newRig(t, Options{})
	request := httpadapter.RecordKey{Principal: "alice", Method: "POST",
		Route: "api.example/payments", Key: "k1"}
	hook := webhook.RecordKey{Provider: "stripe", Endpoint: "billing", EventID: "evt_A"}
	for scope, key := range map[string]string{request.Scope(): "k1", hook.Scope(): "evt_A",
		keyname.ScopeGRPC("", "alice", "/pay.Pay/Charge"): "g1"} {
		c, err := r.deduper.Claim(t.Context(), key, dedup.WithScope(scope))
		require.NoError(t, err)
		require.NoError(t, c.Complete(t.Context(), nil))
	}
	for name, form := range map[string]url.Values{
		"url": {"by": {"request"}, "namespace": {"shop"}, "key": {"k1"}, "method": {"POST"},
			"url": {"https://API.example:443/payments"}, "principal": {"alice"}},
		"route": {"by": {"request"}, "namespace": {"shop"}, "key": {"k1"}, "method": {"POST"},
			"route": {"api.example/payments"}, "principal": {"alice"}},
		"webhook": {"by": {"webhook"}, "namespace": {"shop"}, "key": {"evt_A"},
			"webhook": {"stripe"}, "endpoint": {"billing"}},
		"grpc": {"by": {"call"}, "namespace": {"shop"}, "key": {"g1"},
			"grpc": {"/pay.Pay/Charge"}, "principal": {"alice"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, name, r.do(http.MethodPost, "/search", form), 200, "succeeded")
		})
	}
	compare(t, "the key alone", r.do(http.MethodPost, "/search",
		url.Values{"namespace": {"shop"}, "key": {"k1"}}), 404, "There is no record",
		"have a scope")
	compare(t, "half a request", r.do(http.MethodPost, "/search",
		url.Values{"by": {"request"}, "namespace": {"shop"}, "key": {"k1"},
			"url": {"https://a/b"}}), 400,
		"The method is missing",
		`id="request-method" name="method" value="" maxlength="32" required spellcheck="false" aria-invalid="true"`)
}

func TestSearchByTheBeginningOfAnID(t *testing.T) {
	r := newRig(t, Options{})
	ids := []driver.ID{{0xab, 0xcd, 0x11}, {0xab, 0xcd, 0x12}}
	for _, id := range ids {
		a := r.store.Claim(t.Context(),
			[]driver.ClaimRequest{{ID: id, Token: driver.Token{1}, Lease: time.Minute,
				Hold: time.Minute, Label: "order 7"}})[0]
		require.NoError(t, a.Err)
	}
	post := func(text string) *httptest.ResponseRecorder {
		return r.do(http.MethodPost, "/search", url.Values{"id": {text}})
	}
	compare(t, "one", post("urn:onceward:ABCD11"), 200, "in_progress",
		hex.EncodeToString(ids[0][:]))
	w := post("abcd1")
	compare(t, "two", w, 200, "Several keys", "key?id="+hex.EncodeToString(ids[0][:]),
		"key?id="+hex.EncodeToString(ids[1][:]), "order 7")
	assert.Equal(t, 1, strings.Count(w.Body.String(), `aria-invalid="true"`))
	compare(t, "none", post("abcd13"), 404, "No key in the store")
	compare(t, "short", post("abc"), 400, "32 hex digits")
}
