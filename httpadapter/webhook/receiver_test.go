package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
)

func TestOneEffectForADelivery(t *testing.T) {
	want := webhook.Delivery{Provider: "standard-webhooks", Endpoint: "billing", ID: "evt_1",
		Type: "paid", Body: []byte(`{"type":"paid"}`)}
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
		provider(t, "standard-webhooks", secret),
		func(_ context.Context, d *webhook.Delivery) error {
			assert.Equal(t, want.Provider, d.Provider)
			assert.Equal(t, want.Endpoint, d.Endpoint)
			assert.Equal(t, want.ID, d.ID)
			assert.Equal(t, want.Type, d.Type)
			assert.Equal(t, string(want.Body), string(d.Body))
			assert.False(t, d.Sent.IsZero(), "got %+v", d)
			assert.Equal(t, "evt_1", d.Header.Get("Webhook-Id"))
			return nil
		}, webhook.Config{})
	for range 3 {
		wantOK(t, send(e, standard(t, "evt_1", string(want.Body))))
	}
	// The id is signed and identifies the event: Stripe's bodies change from attempt to attempt.
	wantOK(t, send(e, standard(t, "evt_1", `{"type":"paid","attempt":2}`)))
	e.wantRuns(t, 1)
}

// Two providers send to one endpoint. An id of one is not an id of the other.
func TestProvidersAreApart(t *testing.T) {
	run := claimed(t, dedup.Memory(100), nil)
	for _, name := range []string{"acme", "other"} {
		p := provider(t, "standard-webhooks", secret)
		p.Name = name
		e := newEndpoint(t, run, p, nil, webhook.Config{Endpoint: "billing"})
		wantOK(t, send(e, standard(t, "1", "{}")))
		wantOK(t, send(e, standard(t, "1", "{}")))
		e.wantRuns(t, 1)
	}
}

// Two receivers of one namespace have separate ids.
func TestEndpointsAreApart(t *testing.T) {
	run := claimed(t, dedup.Memory(100), nil)
	for _, name := range []string{"billing", "crm"} {
		for _, p := range []webhook.Provider{provider(t, "standard-webhooks", secret),
			provider(t, "github", gitHubSecret)} {
			e := newEndpoint(t, run, p, nil, webhook.Config{Endpoint: name})
			r := standard(t, "1", "{}")
			if p.Name == "github" {
				r = gitHub("1", "push", "{}")
			}
			wantOK(t, send(e, r))
			e.wantRuns(t, 1)
		}
	}
}

// GitHub's id is not signed. The body identifies the event, and its id must be the same each time.
func TestUnsignedIDs(t *testing.T) {
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), provider(t, "github", gitHubSecret),
		nil, webhook.Config{})
	wantOK(t, send(e, gitHub("1", "push", "{}")))
	wantOK(t, send(e, gitHub("1", "push", "{}"))) // redelivered by hand
	e.wantRuns(t, 1)
	wantProblem(t, send(e, gitHub("2", "push", "{}")), 422, "delivery-relabelled", "") // captured
	e.wantRuns(t, 1)
	assert.Contains(t, e.log.String(), "another id", "not logged")
	// An attacker with a signed body sends it under the id of an event that is still to come.
	wantOK(t, send(e, gitHub("3", "push", `{"captured":true}`)))
	wantOK(t, send(e, gitHub("3", "push", `{"honest":true}`)))
	e.wantRuns(t, 3)
	wantOK(t, send(e, gitHub("4", "issues", "{}"))) // an equal body of another type
	e.wantRuns(t, 4)
}

func TestRelabelled(t *testing.T) {
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), provider(t, "github", gitHubSecret),
		nil, webhook.Config{Relabelled: true})
	for _, id := range []string{"1", "2", "1", "2"} {
		wantOK(t, send(e, gitHub(id, "repository_dispatch", "{}")))
	}
	e.wantRuns(t, 2)
	wantOK(t, send(e, gitHub("1", "repository_dispatch", `{"other":1}`)))
	e.wantRuns(t, 3)
}

func TestHandlesNoRecord(t *testing.T) {
	run := &fake{do: func(context.Context, string, httpadapter.Effect,
		dedup.Request) (dedup.Result[[]byte], error) {
		panic("claimed")
	}, limit: 100}
	e := newEndpoint(t, run, provider(t, "github", gitHubSecret),
		nil, webhook.Config{Handles: func(s string) bool { return s == "push" }})
	wantOK(t, send(e, gitHub("1", "ping", "{}")))
	e.wantRuns(t, 0)
	r := gitHub("1", "ping", "{}")
	r.Header.Set("X-Hub-Signature-256", "sha256=00")
	wantProblem(t, send(e, r), 401, "not-verified", "")
}

func TestSlackChallenge(t *testing.T) {
	sign := func(body string) *http.Request {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		h := http.Header{}
		h.Set("X-Slack-Request-Timestamp", now)
		h.Set("X-Slack-Signature", "v0="+hexMAC("s", "v0:"+now+":"+body))
		return request(h, body)
	}
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), provider(t, "slack", "s"), nil,
		webhook.Config{Handles: func(string) bool { return true }})
	const body = `{"type":"url_verification","token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`
	w := send(e, sign(body))
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", w.Body.String())
	assert.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain"))
	forged := sign(body)
	forged.Header.Set("X-Slack-Signature", "v0="+hexMAC("t", body))
	wantProblem(t, send(e, forged), 401, "not-verified", "")
	wantProblem(t, send(e, sign(`{"type":"url_verification"}`)), 400, "delivery-malformed", "")
	wantProblem(t, send(e, sign(`command=%2Fdeploy`)), 400, "delivery-malformed", "")
	e.log.Reset()
	wantOK(t, send(e, sign(
		`{"token":"x","type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820,"api_app_id":"A1"}`)))
	assert.Contains(t, e.log.String(), "app_rate_limited", "not logged")
	e.wantRuns(t, 0)
	wantOK(t, send(e, sign(
		`{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}`)))
	e.wantRuns(t, 1)
}

func TestRequestsThatAreNone(t *testing.T) {
	p := provider(t, "standard-webhooks", secret)
	p.BodyLimit = 10
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), p, nil, webhook.Config{})
	get := standard(t, "1", "{}")
	get.Method = http.MethodGet
	w := send(e, get)
	wantProblem(t, w, 405, "method-not-allowed", "")
	assert.Equal(t, "POST", w.Header().Get("Allow"))
	wantProblem(t, send(e, standard(t, "1", "01234567890")), 413, "request-too-large", "")
	chunked := standard(t, "1", "01234567890")
	chunked.ContentLength = -1
	wantProblem(t, send(e, chunked), 413, "request-too-large", "")
	wantOK(t, send(e, standard(t, "1", "0123456789")))
	broken := standard(t, "2", "{}")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
	wantProblem(t, send(e, broken), 400, "body-incomplete", "")
	taken := standard(t, "2", "{}")
	_, _ = io.ReadAll(taken.Body)
	wantProblem(t, send(e, taken), 500, "body-taken", "")
	long := standard(t, strings.Repeat("x", 256), "{}")
	wantProblem(t, send(e, long), 400, "delivery-malformed", "")
	e.wantRuns(t, 1)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The handler's error decides, even if it looks like an error of the store.
func TestHandlersError(t *testing.T) {
	for _, failure := range []error{
		errors.New("bank is down"), dedup.ErrInFlight, dedup.ErrMismatch, dedup.ErrNoResult,
		dedup.ErrUncertain,
		context.Canceled, &dedup.InputError{Field: "x", Reason: "y"},
		dedup.NotStarted(errors.New("not begun")),
	} {
		fail := failure
		e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
			provider(t, "standard-webhooks", secret),
			func(context.Context, *webhook.Delivery) error {
				return fail
			}, webhook.Config{})
		wantProblem(t, send(e, standard(t, "1", "{}")), 500, "handler-failed", "")
		fail = nil
		wantOK(t, send(e, standard(t, "1", "{}")))
		e.wantRuns(t, 2)
	}
}

func TestPermanentIsRecordedAndAcknowledged(t *testing.T) {
	for name, change := range map[string]func(*dedup.Config){"with results": nil,
		"seen only": func(c *dedup.Config) { c.SeenOnly = true }} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, claimed(t, dedup.Memory(100), change),
				provider(t, "standard-webhooks", secret),
				func(context.Context, *webhook.Delivery) error {
					return fmt.Errorf("card: %w", dedup.Permanent(errors.New("declined")))
				}, webhook.Config{})
			wantOK(t, send(e, standard(t, "1", "{}")))
			assert.Contains(t, e.log.String(), "declined", "not logged")
			wantOK(t, send(e, standard(t, "1", "{}")))
			e.wantRuns(t, 1)
		})
	}
}

// A failure for good is acknowledged only when it is on record, like every other end.
func TestPermanentWithoutARecordIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the leases are short
		store := deduptest.NewFaulty(dedup.Memory(100), nil)
		run := claimed(t, store, func(c *dedup.Config) {
			c.LeaseTTL, c.StoreTimeout = 50*time.Millisecond, 10*time.Millisecond
		})
		for _, end := range []error{nil, dedup.Permanent(errors.New("declined"))} {
			e := newEndpoint(t, run, provider(t, "standard-webhooks", secret),
				func(context.Context, *webhook.Delivery) error {
					store.SetPlan(func(deduptest.Call) deduptest.Fault {
						return deduptest.Fault{Kind: deduptest.DropRequest}
					})
					return end
				}, webhook.Config{})
			w := send(e, standard(t, fmt.Sprint("evt_", end == nil), "{}"))
			store.SetPlan(nil)
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, "%v without a record", end)
			assert.NotEmpty(t, w.Header().Get("Retry-After"), "%v without a record", end)
			e.wantRuns(t, 1)
		}
	})
}

func TestSeenOnly(t *testing.T) {
	run := claimed(t, dedup.Memory(100), func(c *dedup.Config) { c.SeenOnly = true })
	e := newEndpoint(t, run, provider(t, "standard-webhooks", secret), nil, webhook.Config{})
	wantOK(t, send(e, standard(t, "1", "{}")))
	wantOK(t, send(e, standard(t, "1", "{}")))
	e.wantRuns(t, 1)
	g := newEndpoint(t, run, provider(t, "github", gitHubSecret), nil, webhook.Config{})
	wantOK(t, send(g, gitHub("1", "push", "{}")))
	wantOK(t, send(g, gitHub("1", "push", "{}")))
	wantProblem(t, send(g, gitHub("2", "push", "{}")), 422, "delivery-relabelled", "")
	g.wantRuns(t, 1)
}

func TestInFlight(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
		provider(t, "standard-webhooks", secret), func(context.Context, *webhook.Delivery) error {
			close(begun)
			<-end
			return nil
		}, webhook.Config{RetryAfter: 3 * time.Second})
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- send(e, standard(t, "1", "{}")) }()
	<-begun
	wantProblem(t, send(e, standard(t, "1", "{}")), 409, "in-flight", "3")
	close(end)
	wantOK(t, <-first)
	wantOK(t, send(e, standard(t, "1", "{}")))
	e.wantRuns(t, 1)
}

// A resolver finds out that an uncertain delivery has failed for good. Its record has no value of
// the receiver, but is acknowledged. With 500 the provider would redeliver until it gives the
// endpoint up.
func TestAnOperatorsFailureIsAcknowledged(t *testing.T) {
	run := claimed(t, dedup.Memory(100), func(c *dedup.Config) {
		c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.FailedForGood("the account is closed"), nil
		}
	})
	e := newEndpoint(t, run, provider(t, "standard-webhooks", secret),
		func(ctx context.Context, _ *webhook.Delivery) error {
			return errors.Join(dedup.MarkIrreversible(ctx), errors.New("down"))
		}, webhook.Config{})
	wantProblem(t, send(e, standard(t, "1", "{}")), 500, "handler-failed", "")
	for range 2 {
		e.log.Reset()
		wantOK(t, send(e, standard(t, "1", "{}")))
		assert.Contains(t, e.log.String(), "the account is closed")
	}
	e.wantRuns(t, 1)
}

// Unless the event is done, the answer makes the provider send again.
func TestOnlyNilIsAcknowledged(t *testing.T) {
	type result = dedup.Result[[]byte]
	for _, row := range []struct {
		res    result
		err    error
		runs   bool
		status int
		name   string
		after  string
	}{
		{result{Record: dedup.Record{Remaining: 1500 * time.Millisecond}}, dedup.ErrInFlight,
			false, 409, "in-flight", "2"},
		{result{}, dedup.ErrUncertain, false, 409, "uncertain", "30"},
		{result{}, dedup.ErrUncertain, true, 409, "uncertain", "30"},
		{result{}, dedup.ErrMismatch, false, 422, "delivery-relabelled", ""},
		{result{}, driver.ErrStoreFull, false, 503, "store-unavailable", "5"},
		{result{}, dedup.ErrClosed, false, 503, "store-unavailable", "5"},
		{result{}, errors.New("down"), false, 503, "store-unavailable", "5"},
		{result{}, dedup.ErrLeaseLost, true, 503, "outcome-unknown", "5"},
		// we have to fix these
		{result{}, &dedup.InputError{Field: "Fingerprint", Reason: "is set"}, false, 503,
			"store-unavailable", "5"},
		{result{}, nil, false, 503, "store-unavailable", "5"},
	} {
		run := &fake{limit: 100, do: func(ctx context.Context, _ string, effect httpadapter.Effect,
			_ dedup.Request) (result, error) {
			if row.runs {
				_, _, _ = effect(ctx)
			}
			return row.res, row.err
		}}
		e := newEndpoint(t, run, provider(t, "github", gitHubSecret),
			nil, webhook.Config{RetryAfter: 5 * time.Second})
		wantProblem(t, send(e, gitHub("1", "push", "{}")), row.status, row.name, row.after)
	}
}

// If the store keeps no fingerprints, that is our mistake, and not the provider's.
func TestAStoreThatRefusesTheKeyIsUnavailable(t *testing.T) {
	e := newEndpoint(t, claimed(t, compact{dedup.Memory(100)}, nil),
		provider(t, "github", gitHubSecret), nil, webhook.Config{})
	wantProblem(t, send(e, gitHub("1", "push", "{}")), 503, "store-unavailable", "1")
	assert.Contains(t, e.log.String(), "Fingerprint is set", "not logged")
	e.wantRuns(t, 0)
	relabelled := newEndpoint(t, claimed(t, compact{dedup.Memory(100)}, nil),
		provider(t, "github", gitHubSecret), nil, webhook.Config{Relabelled: true})
	wantOK(t, send(relabelled, gitHub("1", "push", "{}")))
	relabelled.wantRuns(t, 1)
}

// compact refuses fingerprints, as redisadapter's layout Compact does.
type compact struct{ dedup.Store }

func (c compact) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := make([]driver.Answer, len(reqs))
	for i := range reqs {
		if reqs[i].Fingerprint != (driver.Fingerprint{}) {
			answers[i].Err = &dedup.InputError{Field: "Fingerprint",
				Reason: "is set; the layout Compact keeps none"}
			continue
		}
		answers[i] = c.Store.Claim(ctx, reqs[i:i+1])[0]
	}
	return answers
}

// Keys are stored for as long as the window, and another version must find them. A scope is
// base64url of the SHA-256 of webhook, 1, id or body, provider and endpoint, each after its length
// in 8 bytes. Python's hashlib has computed the values.
func TestKeysStayWhatTheyAre(t *testing.T) {
	type made struct{ scope, key string }
	for _, row := range []struct {
		name       string
		relabelled bool
		want       made
	}{
		{"standard-webhooks", false, made{"YVSI54K_F40HsfP-s5f-Ey8tQq0aJPlqbL25F1RmNYU", "evt_1"}},
		{"github", false, made{"hZTzbqjyUfXJrEYIeH0sWy8iiFxBrfcGh1ViBy89Jes",
			"Xkuqjvt9msosC-_R6pp7Dhz8vR5LaH7Hzj84wruM0G4"}},
		{"github", true, made{"hZTzbqjyUfXJrEYIeH0sWy8iiFxBrfcGh1ViBy89Jes",
			"lxV8STfRsKJKa3FN8Mg55H261ASdOi0cNiBzpjAaOwU"}},
	} {
		var got made
		var bound driver.Fingerprint
		run := &fake{limit: 100, do: func(_ context.Context, key string, _ httpadapter.Effect,
			req dedup.Request) (dedup.Result[[]byte], error) {
			got, bound = made{req.Scope, key}, req.Fingerprint
			return dedup.Result[[]byte]{Outcome: dedup.Duplicate}, nil
		}}
		s, r := secret, standard(t, "evt_1", "{}")
		if row.name == "github" {
			s, r = gitHubSecret, gitHub("evt_1", "push", "{}")
		}
		wantOK(t, send(newEndpoint(t, run, provider(t, row.name, s),
			nil, webhook.Config{Relabelled: row.relabelled}), r))
		assert.Equal(t, row.want, got, "%s, Relabelled %v", row.name, row.relabelled)
		want := driver.Fingerprint{}
		if row.name == "github" && !row.relabelled {
			want = driver.FingerprintOf([]byte("evt_1"))
		}
		assert.Equal(t, want, bound, "%s, Relabelled %v", row.name, row.relabelled)
	}
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the leases are short
		store := deduptest.NewFaulty(dedup.Memory(100), func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.DropRequest}
		})
		run := claimed(t, store, func(c *dedup.Config) {
			c.LeaseTTL, c.StoreTimeout = 50*time.Millisecond, 10*time.Millisecond
		})
		e := newEndpoint(t, run, provider(t, "standard-webhooks", secret), nil, webhook.Config{})
		wantProblem(t, send(e, standard(t, "1", "{}")), 503, "store-unavailable", "1")
		e.wantRuns(t, 0)
		store.SetPlan(nil)
		wantOK(t, send(e, standard(t, "1", "{}")))
		e.wantRuns(t, 1)
	})
}

// A Runner of SQL runs the effect again after a deadlock. Each run gets a new delivery, whatever
// the run before has changed in its own.
func TestTheRunnerRepeats(t *testing.T) {
	run := &fake{limit: 100, do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		_, undo, err := effect(ctx)
		assert.NoError(t, err)
		assert.True(t, undo, "first run")
		value, undo, err := effect(ctx)
		assert.False(t, undo, "second run")
		assert.NotZero(t, len(value))
		return dedup.Result[[]byte]{Value: value, Outcome: dedup.Acquired}, err
	}}
	runs := 0
	e := newEndpoint(t, run, provider(t, "github", gitHubSecret),
		func(_ context.Context, d *webhook.Delivery) error {
			assert.Equal(t, "{}", string(d.Body))
			assert.Equal(t, "push", d.Header.Get("X-GitHub-Event"))
			assert.Equal(t, "1", d.ID)
			clear(d.Body)
			clear(d.Header)
			if runs++; runs == 1 {
				return dedup.Permanent(errors.New("of a transaction that was rolled back"))
			}
			return nil
		}, webhook.Config{})
	wantOK(t, send(e, gitHub("1", "push", "{}")))
	e.wantRuns(t, 2)
	assert.LessOrEqual(t, e.log.Len(), 0)
}

// Slack hangs up after three seconds, and the handler takes five.
func TestClientHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := dedup.New(dedup.Memory(100),
			dedup.Config{Namespace: "w", Window: 100 * time.Hour, LeaseTTL: 10 * time.Second})
		require.NoError(t, err)
		defer func() { _ = d.Close(context.Background()) }()
		run, err := httpadapter.Claimed(d)
		require.NoError(t, err)
		e := newEndpoint(t, run, provider(t, "standard-webhooks", secret),
			func(ctx context.Context, _ *webhook.Delivery) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(5 * time.Second):
					return nil
				}
			}, webhook.Config{})
		ctx, hangUp := context.WithTimeout(t.Context(), 3*time.Second)
		defer hangUp()
		wantOK(t, send(e, standard(t, "1", "{}").WithContext(ctx)))
		assert.Error(t, ctx.Err(), "the client waited")
		wantOK(t, send(e, standard(t, "1", "{}")))
		e.wantRuns(t, 1)

		gone, leave := context.WithCancel(t.Context())
		leave()
		w := send(e, standard(t, "2", "{}").WithContext(gone))
		assert.NotEqual(t, http.StatusOK, w.Code, "acknowledged, and nothing has begun")
		e.wantRuns(t, 1)
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := dedup.New(dedup.Memory(100),
			dedup.Config{Namespace: "w", Window: 100 * time.Hour, LeaseTTL: 10 * time.Second})
		require.NoError(t, err)
		defer func() { _ = d.Close(context.Background()) }()
		run, err := httpadapter.Claimed(d)
		require.NoError(t, err)
		for want, timeout := range map[time.Duration]time.Duration{time.Minute: 0,
			2 * time.Second: 2 * time.Second} {
			e := newEndpoint(t, run, provider(t, "standard-webhooks", secret),
				func(ctx context.Context, _ *webhook.Delivery) error {
					<-ctx.Done()
					return ctx.Err()
				}, webhook.Config{Timeout: timeout})
			begin := time.Now()
			wantProblem(t, send(e, standard(t, "1", "{}")), 500, "handler-failed", "")
			assert.Equal(t, want, time.Since(begin))
		}
	})
}

// A handler that was canceled by its timeout may wrap the cancellation in Permanent. If that were
// acknowledged, the event would be lost.
func TestPermanentAfterTheTimeoutIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
			provider(t, "standard-webhooks", secret),
			func(ctx context.Context, _ *webhook.Delivery) error {
				if runs++; runs > 1 {
					return nil
				}
				<-ctx.Done()
				return dedup.Permanent(ctx.Err())
			}, webhook.Config{Timeout: time.Second})
		wantProblem(t, send(e, standard(t, "1", "{}")), 500, "handler-failed", "")
		assert.Contains(t, e.log.String(), "deadline exceeded", "not logged")
		wantOK(t, send(e, standard(t, "1", "{}")))
		assert.Equal(t, 2, runs)
	})
}

func TestPanicsReleaseAndGoOn(t *testing.T) {
	e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
		provider(t, "standard-webhooks", secret), nil, webhook.Config{})
	boom := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
		provider(t, "standard-webhooks", secret), func(context.Context, *webhook.Delivery) error {
			panic("boom")
		}, webhook.Config{})
	func() {
		defer func() {
			assert.Equal(t, "boom", recover(), "the panic is gone")
		}()
		send(boom, standard(t, "1", "{}"))
	}()
	wantOK(t, send(e, standard(t, "1", "{}")))
}

func TestNewRefuses(t *testing.T) {
	run := claimed(t, dedup.Memory(100), func(c *dedup.Config) {
		c.Window = 75*time.Hour + 34*time.Minute
	})
	p := provider(t, "standard-webhooks", secret)
	handle := func(context.Context, *webhook.Delivery) error { return nil }
	cfg := webhook.Config{Endpoint: "billing", ShortWindow: true}
	with := func(change func(*webhook.Config)) webhook.Config { c := cfg; change(&c); return c }
	changed := func(change func(*webhook.Provider)) webhook.Provider {
		c := p
		change(&c)
		return c
	}
	_, err := webhook.New(run, p, handle, cfg)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		run    httpadapter.Runner
		p      webhook.Provider
		handle webhook.Handler
		cfg    webhook.Config
	}{
		"no runner":   {nil, p, handle, cfg},
		"no provider": {run, webhook.Provider{}, handle, cfg},
		"no verify": {run, changed(func(p *webhook.Provider) {
			p.Verify = nil
		}), handle, cfg},
		"no name": {run, changed(func(p *webhook.Provider) { p.Name = "" }), handle, cfg},
		"no horizon": {run, changed(func(p *webhook.Provider) {
			p.Horizon = 0
		}), handle, cfg},
		"negative limit": {run, changed(func(p *webhook.Provider) {
			p.BodyLimit = -1
		}), handle, cfg},
		"no handler":       {run, p, nil, cfg},
		"no endpoint":      {run, p, handle, with(func(c *webhook.Config) { c.Endpoint = "" })},
		"negative timeout": {run, p, handle, with(func(c *webhook.Config) { c.Timeout = -1 })},
		"negative retry":   {run, p, handle, with(func(c *webhook.Config) { c.RetryAfter = -1 })},
		"window too short": {run, p, handle, with(func(c *webhook.Config) {
			c.ShortWindow = false
		})},
		"results too short": {&fake{limit: 1}, p, handle, cfg},
		"window below 30 d": {claimed(t, dedup.Memory(1), func(c *dedup.Config) {
			c.Window = webhook.DefaultWindow
		}), provider(t, "stripe", "s"), handle, with(func(c *webhook.Config) {
			c.ShortWindow = false
		})},
	} {
		r, err := webhook.New(row.run, row.p, row.handle, row.cfg)
		assert.Nil(t, r, "%s: accepted", name)
		assert.ErrorAs(t, err, new(*dedup.InputError))
	}
	short := webhook.Config{Endpoint: "x"}
	_, err = webhook.New(run, p, handle, short)
	for _, part := range []string{"dedup: Window of the Runner is 75h34m0s, ",
		"standard-webhooks may send an event again for 75h35m0s. Set Window in dedup.Config",
		"sqladapter.Config", "at least", "ShortWindow"} {
		assert.ErrorContains(t, err, part)
	}
	for _, name := range []string{"standard-webhooks", "github", "shopify", "slack"} {
		run := claimed(t, dedup.Memory(1), func(c *dedup.Config) {
			c.Window = webhook.DefaultWindow
		})
		s := secret
		_, err := webhook.New(run, provider(t, name, s), handle, webhook.Config{Endpoint: "x"})
		assert.NoError(t, err, name)
	}
	_, err = webhook.New(&fake{limit: 100}, p, handle, webhook.Config{Endpoint: "x"})
	assert.NoError(t, err, "forever")
}
