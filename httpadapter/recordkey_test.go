package httpadapter_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

// keyed is a service over a store that a test can look into.
func keyed(t *testing.T, cfg httpadapter.Config, handle http.HandlerFunc) (*service, dedup.Store,
	*bytes.Buffer) {
	t.Helper()
	store, log := dedup.Memory(1000), new(bytes.Buffer)
	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: 24 * time.Hour,
		LeaseTTL: time.Minute, Labels: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	return newServiceOver(t, d, cfg, handle), store, log
}

// An operator who knows a customer's request finds its record.
func TestRecordIsFoundFromARequest(t *testing.T) {
	for name, test := range map[string]struct {
		cfg httpadapter.Config
		key httpadapter.RecordKey
	}{
		"the default route": {key: httpadapter.RecordKey{
			Route: httpadapter.DefaultRoute(httptest.NewRequest(http.MethodPost,
				"https://API.example:443/%70ayments?x=1", http.NoBody)),
		}},
		"a name and a route": {
			httpadapter.Config{Name: "v2", Route: func(*http.Request) string {
				return "/payments"
			}}, httpadapter.RecordKey{Name: "v2", Route: "/payments"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, store, log := keyed(t, test.cfg, created())
			wantAnswer(t, s.post("k1", "{}"), 201, "paid", firstTime)
			k := test.key
			k.Principal, k.Method, k.Key = "acme", http.MethodPost, "k1"
			id, err := k.ID("payments")
			require.NoError(t, err)
			a := store.Lookup(t.Context(), []driver.ID{id})[0]
			assert.Equal(t, driver.StateSucceeded, a.Record.State)
			assert.Equal(t, "POST /payments k1", a.Record.Label)

			w := s.post("k1", `{"other":true}`)
			wantProblem(t, w, 422, "key-reused", nil)
			wantNamed(t, w, id, log)
		})
	}
}

// The answer to the customer and the log contain the ID of an uncertain record.
func TestUncertainIsNamed(t *testing.T) {
	s, store, log := keyed(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, dedup.MarkIrreversible(r.Context()))
		w.WriteHeader(http.StatusBadGateway)
	})
	s.post("k1", "{}")
	w := s.post("k1", "{}")
	wantProblem(t, w, 409, "uncertain", map[string]string{"Retry-After": "30"})
	id, err := httpadapter.RecordKey{Principal: "acme", Method: http.MethodPost,
		Route: "api.example/payments", Key: "k1"}.ID("payments")
	require.NoError(t, err)
	assert.Equal(t, driver.StateUncertain, store.Lookup(t.Context(),
		[]driver.ID{id})[0].Record.State)
	wantNamed(t, w, id, log)
}

// named is a Runner that reports its namespace.
type named struct{ *fake }

func (named) Namespace() string { return "payments" }

func TestUnknownOutcomeIsNamed(t *testing.T) {
	log := new(bytes.Buffer)
	run := named{&fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		_, _, _ = effect(ctx)
		return dedup.Result[[]byte]{}, dedup.ErrLeaseLost
	}}}
	m := newMiddleware(t, run, byHeader,
		httpadapter.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	w := send(m.Handler(created()), post("k1", "{}"))
	wantProblem(t, w, 503, "outcome-unknown", map[string]string{"Retry-After": "1"})
	id, err := httpadapter.RecordKey{Principal: "acme", Method: http.MethodPost,
		Route: "api.example/payments", Key: "k1"}.ID("payments")
	require.NoError(t, err)
	wantNamed(t, w, id, log)

	w = send(newMiddleware(t, run.fake, byHeader, httpadapter.Config{}).Handler(created()),
		post("k1", "{}"))
	assert.NotContains(t, w.Body.String(), "instance", "of a Runner without a namespace")
}

func wantNamed(t *testing.T, w *httptest.ResponseRecorder, id driver.ID, log *bytes.Buffer) {
	t.Helper()
	var got struct{ Instance string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	assert.Equal(t, "urn:onceward:"+hex.EncodeToString(id[:]), got.Instance)
	assert.Contains(t, log.String(), "key_id="+hex.EncodeToString(id[:]))
}
