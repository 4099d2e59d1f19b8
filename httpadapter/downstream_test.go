package httpadapter_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/httpadapter"
)

// callFor posts to a service, with a context for the given purpose.
func callFor(ctx context.Context, client *http.Client, url string, purpose ...string) error {
	if purpose != nil {
		ctx = httpadapter.WithPurpose(ctx, purpose...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("5"))
	if err != nil {
		return err
	}
	req.Header.Set("X-Account", "acme")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

var errKilled = errors.New("the process is dead")

// The process of service A dies after service B has answered, and before A's record is written. The
// next process calls B again, and B has each effect once.
func TestCallsHaveTheirEffectOnceAlthoughTheCallerWasKilled(t *testing.T) {
	b := newService(t, httpadapter.Config{}, created())
	server := httptest.NewServer(b.h)
	defer server.Close()
	client := &http.Client{Transport: &httpadapter.Transport{}}
	store := dedup.Memory(10)
	var calls atomic.Int32
	handler := func(ctx context.Context) (struct{}, error) {
		calls.Add(1)
		for _, purpose := range []string{"charge", "mail"} {
			if err := callFor(ctx, client, server.URL, purpose); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	}
	process := func(store dedup.Store) *dedup.Deduper {
		d, err := dedup.New(store, dedup.Config{Namespace: "a", Window: time.Hour,
			LeaseTTL: time.Second, Wait: time.Minute})
		require.NoError(t, err)
		return d
	}

	dying := deduptest.NewFaulty(store, nil)
	_, err := dedup.Do(t.Context(), process(dying), "order-1",
		func(ctx context.Context) (struct{}, error) {
			_, err := handler(ctx)
			dying.SetPlan(func(deduptest.Call) deduptest.Fault {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			})
			return struct{}{}, errors.Join(err, errKilled)
		})
	require.ErrorIs(t, err, errKilled)
	b.wantRuns(t, 2) // two purposes are two operations
	_, err = dedup.Do(t.Context(), process(store), "order-1", handler)
	require.NoError(t, err)
	assert.Equal(t, int32(2), calls.Load())
	b.wantRuns(t, 2)
}

// tripper records its requests.
type tripper struct{ sent []*http.Request }

func (tr *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	tr.sent = append(tr.sent, r)
	return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: r}, nil
}

func TestTransportKeepsToWhatTheCallerSays(t *testing.T) {
	base := &tripper{}
	tr := &httpadapter.Transport{Base: base}
	key := ""
	_, err := dedup.Do(t.Context(), newDeduper(t, nil), "order-1",
		func(ctx context.Context) (struct{}, error) {
			attempt, _ := dedup.FromContext(ctx)
			key = attempt.DownstreamKey("bank", "charge")
			req := httptest.NewRequestWithContext(httpadapter.WithPurpose(ctx, "bank", "charge"),
				http.MethodPost, "/", http.NoBody)
			for _, own := range []string{"", "own"} {
				if own != "" {
					req.Header.Set(httpadapter.KeyHeader, own)
				}
				_, err := tr.RoundTrip(req) //nolint:bodyclose // it has none
				require.NoError(t, err)
				assert.Equal(t, own, req.Header.Get(httpadapter.KeyHeader), "the caller's request")
			}
			_, err := tr.RoundTrip(req.Clone(httpadapter.WithPurpose(ctx))) //nolint:bodyclose // none
			require.NoError(t, err)
			return struct{}{}, callFor(ctx, &http.Client{Transport: tr}, "http://b.example/")
		})
	require.NoError(t, err)
	require.Len(t, base.sent, 4)
	assert.Equal(t, key, base.sent[0].Header.Get(httpadapter.KeyHeader))
	assert.Equal(t, "own", base.sent[1].Header.Get(httpadapter.KeyHeader))
	assert.Equal(t, "own", base.sent[2].Header.Get(httpadapter.KeyHeader))
	assert.Empty(t, base.sent[3].Header.Get(httpadapter.KeyHeader), "a request without a purpose")
}

// A purpose outside of an attempt gives no key, so the request is not sent.
func TestPurposeOutsideOfAnAttemptIsRefused(t *testing.T) {
	base := &tripper{}
	err := callFor(t.Context(), &http.Client{Transport: &httpadapter.Transport{Base: base}},
		"http://b.example/", "charge")
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "httpadapter.WithPurpose", input.Field)
	assert.Empty(t, base.sent)
}
