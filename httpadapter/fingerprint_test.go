package httpadapter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

// Requests with one key must have these parts in common. All have the same route, so that only the
// fingerprint differs.
func TestFingerprint(t *testing.T) {
	cfg := httpadapter.Config{Route: func(*http.Request) string {
		return ""
	}, FingerprintHeaders: []string{"x-currency"}}
	add := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Add(name, value) }
	}
	for _, row := range []struct {
		name   string
		body   string
		change func(*http.Request)
		same   bool
	}{
		{"the same", "{}", header("Accept", "*/*"), true},
		{"another body", "{ }", add("A", "1"), false},
		{"no body", "", add("A", "1"), false},
		{"another path", "{}", target("/payments/7"), false},
		{"a query", "{}", target("/payments?dry=1"), false},
		{"another type", "{}", header("Content-Type", "text/json"), false},
		{"an encoding", "{}", header("Content-Encoding", "gzip"), false},
		{"no named header", "{}", func(r *http.Request) { r.Header.Del("X-Currency") }, false},
		{"another named header", "{}", header("X-Currency", "USD"), false},
		{"two named headers", "{}", add("X-Currency", "USD"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newService(t, cfg, created())
			s.post("k", "{}", header("X-Currency", "EUR"))
			w := s.post("k", row.body, header("X-Currency", "EUR"), row.change)
			if row.same {
				wantAnswer(t, w, 201, "paid", replayed)
			} else {
				wantProblem(t, w, 422, "key-reused", nil)
			}
			s.wantRuns(t, 1)
		})
	}
}

// In net/http Host is not a header. If the Route does not contain it, the fingerprint must differ.
func TestFingerprintOfTheHost(t *testing.T) {
	cfg := httpadapter.Config{Route: func(*http.Request) string {
		return ""
	}, FingerprintHeaders: []string{"host"}}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	s := newService(t, cfg, created())
	s.post("k", "{}", host("eu.example"))
	wantAnswer(t, s.post("k", "{}", host("EU.example")), 201, "paid", replayed)
	wantProblem(t, s.post("k", "{}", host("us.example")), 422, "key-reused", nil)
}

func TestCanonical(t *testing.T) {
	canonical := func(contentType string, body []byte) ([]byte, error) {
		if contentType != "application/json" {
			return nil, errors.New("not JSON")
		}
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}
	s := newService(t, httpadapter.Config{Canonical: canonical},
		func(w http.ResponseWriter, r *http.Request) {
			var b bytes.Buffer
			_, _ = b.ReadFrom(r.Body)
			_, _ = w.Write(b.Bytes()) // the handler gets the body as it was sent
		})
	const sent = `{"b": 2, "a": 1}`
	wantAnswer(t, s.post("k", sent), 200, sent, firstTime)
	wantAnswer(t, s.post("k", `{"a":1,"b":2}`), 200, sent, replayed)
	wantProblem(t, s.post("k", `{"a":1,"b":3}`), 422, "key-reused", nil)
	// A body that is not JSON is compared as it is.
	wantAnswer(t, s.post("bad", `{"a"`), 200, `{"a"`, firstTime)
	wantAnswer(t, s.post("bad", `{"a"`), 200, `{"a"`, replayed)
	wantProblem(t, s.post("bad", `{"a" `), 422, "key-reused", nil)
}

// Canonical may write into the body that it gets.
func TestCanonicalInPlace(t *testing.T) {
	upper := func(_ string, body []byte) ([]byte, error) {
		for i, b := range body {
			body[i] = byte(unicode.ToUpper(rune(b)))
		}
		return body, nil
	}
	s := newService(t, httpadapter.Config{Canonical: upper},
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})
	wantAnswer(t, s.post("k", "a"), 200, "a", firstTime)
	wantAnswer(t, s.post("k", "A"), 200, "a", replayed)
}

// During a deployment some processes make fingerprints of other parts than others. Such
// fingerprints are not compared, like those with two versions of the key. A retry that reaches
// another process gets the replay, and not a 422.
func TestFingerprintsOfOtherParts(t *testing.T) {
	key := func(version int) *httpadapter.FingerprintKey {
		return &httpadapter.FingerprintKey{Version: version, Key: make([]byte, 32)}
	}
	raw := func(_ string, body []byte) ([]byte, error) { return body, nil }
	old := httpadapter.Config{}
	named := httpadapter.Config{FingerprintHeaders: []string{"X-Currency"}}
	for _, row := range []struct {
		name     string
		old, new httpadapter.Config
		compared bool
	}{
		{"a header more", old, named, false},
		{"a header less", named, old, false},
		{"Canonical", old, httpadapter.Config{Canonical: raw}, false},
		{"a header more, keyed", httpadapter.Config{FingerprintKey: key(127)},
			httpadapter.Config{FingerprintKey: key(127),
				FingerprintHeaders: []string{"X-Currency"}}, false},
		{"a version more", httpadapter.Config{FingerprintKey: key(1), Canonical: raw},
			httpadapter.Config{FingerprintKey: key(2), Canonical: raw}, false},
		{"the same otherwise written", httpadapter.Config{FingerprintHeaders: []string{"A", "B"}},
			httpadapter.Config{FingerprintHeaders: []string{"b", "a", "A", "content-type"}}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDeduper(t, nil)
			before, after := newServiceOver(t, d, row.old, created()),
				newServiceOver(t, d, row.new, created())
			before.post("k", "{}")
			wantAnswer(t, after.post("k", "{}"), 201, "paid", replayed)
			w := after.post("k", "another")
			if row.compared {
				wantProblem(t, w, 422, "key-reused", nil)
			} else {
				wantAnswer(t, w, 201, "paid", replayed)
			}
			wantProblem(t, before.post("k", "another"), 422, "key-reused", nil)
		})
	}
}

func TestFingerprintKeys(t *testing.T) {
	key := func(version int, b byte) httpadapter.Config {
		return httpadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{Version: version,
			Key: bytes.Repeat([]byte{b}, 32)}}
	}
	versions := map[byte]driver.Fingerprint{}
	for _, cfg := range []httpadapter.Config{{}, key(1, 1), key(127, 1)} {
		run := &fake{do: func(_ context.Context, _ string, _ httpadapter.Effect,
			req dedup.Request) (dedup.Result[[]byte], error) {
			versions[req.Fingerprint[0]] = req.Fingerprint
			return dedup.Result[[]byte]{}, errors.New("no")
		}}
		send(newMiddleware(t, run, byHeader, cfg).Handler(status(200)), post("k", "{}"))
	}
	require.Len(t, versions, 3)
	assert.NotEqual(t, versions[129], versions[1])
	assert.NotEqual(t, versions[255], versions[129])
	assert.EqualValues(t, 255, versions[255][0])
	t.Run("a new version is not compared with the old", func(t *testing.T) {
		d := newDeduper(t, nil)
		newServiceOver(t, d, key(1, 1), created()).post("k", "{}")
		w := newServiceOver(t, d, key(2, 2), created()).post("k", "another")
		wantAnswer(t, w, 201, "paid", replayed)
		w = newServiceOver(t, d, key(1, 1), created()).post("k", "another")
		wantProblem(t, w, 422, "key-reused", nil)
	})
}
