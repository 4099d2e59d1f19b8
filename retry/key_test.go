package retry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// All attempts of one operation have one key. The next operation has another key.
func TestGeneratedKeyStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{broken, answer(503, ""), answer(201, ""), answer(503, ""),
			answer(201, "")}}
		tr := transport(t, base, retry.TransportConfig{GenerateKeys: everybody})
		for range 2 {
			req := request(t, "POST", "amount=1")
			resp, err := tr.RoundTrip(req)
			text(t, resp, err)
			assert.Empty(t, req.Header, "the caller's request was changed")
		}
		sent := base.requests()
		require.Len(t, sent, 5)
		first, second := sent[0].key, sent[3].key
		// A string of RFC 8941, 3.3.3, of at least 128 bits.
		assert.True(t, regexp.MustCompile(`^"[A-Z2-7]{26,}"$`).MatchString(first))
		assert.NotEqual(t, second, first)
		for i, s := range sent {
			want := []string{first, first, first, second, second}[i]
			assert.Equal(t, want, s.key, "request %d", i+1)
			assert.Equal(t, "amount=1", s.body, "request %d", i+1)
		}
	})
}

func TestWhereKeysComeFrom(t *testing.T) {
	fixed := func(*http.Request) (string, error) { return "order-7", nil }
	none := func(*http.Request) (string, error) { return "", nil }
	for _, row := range []struct {
		name, method, header string
		key                  func(*http.Request) (string, error)
		generate             func(*http.Request) bool
		want                 string // "*": a random one
	}{
		{"the caller's", "POST", `"mine"`, fixed, everybody, `"mine"`},
		{"Key's", "POST", "", fixed, everybody, `"order-7"`},
		{"Key has none", "POST", "", none, nil, ""},
		{"Key has none, generated", "POST", "", none, everybody, "*"},
		{"generated for PATCH", "PATCH", "", nil, everybody, "*"},
		{"generated for unknown methods", "MERGE", "", nil, everybody, "*"},
		{"a target that does not honour keys", "POST", "", nil, func(*http.Request) bool {
			return false
		}, ""},
		{"none for GET", "GET", "", fixed, everybody, ""},
		{"none for PUT", "PUT", "", fixed, everybody, ""},
		{"none for CONNECT", "CONNECT", "", fixed, everybody, ""},
		{"the caller's on GET", "GET", "bare", nil, everybody, "bare"},
	} {
		base := &script{steps: []step{answer(200, "")}}
		req := request(t, row.method, "")
		if row.header != "" {
			req.Header.Set(retry.KeyHeader, row.header)
		}
		resp, err := transport(t, base,
			retry.TransportConfig{Key: row.key, GenerateKeys: row.generate}).RoundTrip(req)
		text(t, resp, err)
		got := base.requests()[0].key
		assert.False(t, got != row.want && (row.want != "*" || len(got) < 20), "%s: %q, want %q",
			row.name, got, row.want)
	}
}

// A value that cannot be a key is not sent, and the body is closed.
func TestKeyErrors(t *testing.T) {
	unknown := errors.New("no such order")
	for name, key := range map[string]func(*http.Request) (string, error){
		"error":    func(*http.Request) (string, error) { return "", unknown },
		"newline":  func(*http.Request) (string, error) { return "a\r\nEvil: 1", nil },
		"too long": func(*http.Request) (string, error) { return strings.Repeat("k", 254), nil },
		"quotes":   func(*http.Request) (string, error) { return `"k"`, nil },
		"not ASCII": func(*http.Request) (string, error) {
			return "schlüssel", nil
		},
	} {
		base := &script{steps: []step{answer(200, "")}}
		body := &closing{Reader: strings.NewReader("x")}
		req := request(t, "POST", "")
		req.Body = body
		err := refused(t, transport(t, base, retry.TransportConfig{Key: key}), req)
		assert.ErrorContains(t, err, "Key", name)
		assert.True(t, body.closed, name)
		assert.Empty(t, base.requests(), name)
		assert.False(t, name == "error" && !errors.Is(err, unknown), "%v hides the error of Key",
			err)
	}
}

// An http.Client calls RoundTrip for each hop. All hops are one operation and have one key.
func TestRedirectsKeepTheKey(t *testing.T) {
	var mu sync.Mutex
	var got []string
	mux := http.NewServeMux()
	note := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get(retry.KeyHeader)+
			" "+string(body))
		if to := r.URL.Query().Get("to"); to != "" {
			status := http.StatusTemporaryRedirect
			if r.URL.Path == "/see-other" {
				status = http.StatusSeeOther
			}
			http.Redirect(w, r, to, status)
		}
	}
	mux.HandleFunc("/", note)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	honours := func(r *http.Request) bool { return r.URL.Path != "/stranger" }
	client := &http.Client{Transport: transport(t, nil,
		retry.TransportConfig{GenerateKeys: honours})}
	post := func(path, key string) []string {
		t.Helper()
		got = nil
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path,
			strings.NewReader("x"))
		require.NoError(t, err)
		if key != "" {
			req.Header.Set(retry.KeyHeader, key)
		}
		resp, err := client.Do(req)
		text(t, resp, err)
		return got
	}
	hops := post("/temporary?to=/again%3fto=/end", "")
	require.Len(t, hops, 3)
	key := strings.Fields(hops[0])[2]
	for i, path := range []string{"/temporary", "/again", "/end"} {
		assert.Equal(t, "POST "+path+" "+key+" x", hops[i])
		assert.GreaterOrEqual(t, len(key), 20)
	}
	named := 0
	client.Transport = transport(t, nil,
		retry.TransportConfig{Key: func(*http.Request) (string, error) {
			named++
			return fmt.Sprint("order-", named), nil
		}})
	hops = post("/temporary?to=/end", "")
	require.Len(t, hops, 2, "a Key that would name the hops apart")
	assert.Equal(t, `POST /end "order-1" x`, hops[1])
	client.Transport = transport(t, nil, retry.TransportConfig{GenerateKeys: honours})
	hops = post("/temporary?to=/stranger", "")
	require.Len(t, hops, 2, "a target that does not honour keys")
	assert.Equal(t, "POST /stranger  x", hops[1])
	hops = post("/see-other?to=/end", "")
	require.Len(t, hops, 2, "a POST that became GET")
	assert.Equal(t, "GET /end  ", hops[1])
	hops = post("/see-other?to=/end", `"mine"`)
	require.Len(t, hops, 2, "the caller's key is not carried on as http.Client does")
	assert.Equal(t, `GET /end "mine" `, hops[1])
}

// A header map may have the key under the lower-case name of HTTP/2. It is still the key.
func TestKeyByAnotherSpelling(t *testing.T) {
	for value, want := range map[string]string{`"mine"`: `"mine"`, "": `"order-7"`} {
		synctest.Test(t, func(t *testing.T) {
			named := func(*http.Request) (string, error) { return "order-7", nil }
			base := &script{steps: []step{broken, answer(200, "")}}
			req := request(t, "POST", "x")
			req.Header["idempotency-key"] = []string{value}
			resp, err := transport(t, base, retry.TransportConfig{Key: named}).RoundTrip(req)
			text(t, resp, err)
			sent := base.requests()
			require.Len(t, sent, 2, "%q", value)
			for _, s := range sent {
				var lines []string
				for name, values := range s.request.Header {
					if strings.EqualFold(name, retry.KeyHeader) {
						lines = append(lines, values...)
					}
				}
				assert.Equal(t, []string{want}, lines, "%q", value)
			}
			want := (http.Header{"idempotency-key": {value}})
			assert.Equal(t, want, req.Header, "%q: the caller's request was changed", value)
		})
	}
}

// The signal header also counts in any spelling.
func TestSignalByAnotherSpelling(t *testing.T) {
	base := &script{steps: []step{answer(503, "")}}
	req := request(t, "GET", "")
	req.Header["do-not-retry"] = []string{"1"}
	resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(req)
	text(t, resp, err)
	sent := base.requests()
	require.Len(t, sent, 1)
	assert.Len(t, sent[0].request.Header, 1)
}

// A redirect keeps its key even if the base's response does not name its request.
func TestRedirectWithoutRequest(t *testing.T) {
	hop := 0
	base := &script{}
	anonymous := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		resp.Request = nil
		return resp, err
	})
	base.steps = []step{func(req *http.Request) (*http.Response, error) {
		if hop++; hop < 3 {
			return answer(307, "", "Location", fmt.Sprint("/hop-", hop))(req)
		}
		return answer(200, "")(req)
	}}
	client := &http.Client{Transport: transport(t, anonymous,
		retry.TransportConfig{GenerateKeys: everybody})}
	resp, err := client.Post("http://service.test/", "text/plain", strings.NewReader("x"))
	text(t, resp, err)
	sent := base.requests()
	require.Len(t, sent, 3)
	assert.NotEmpty(t, sent[0].key)
	assert.Equal(t, sent[0].key, sent[1].key)
	assert.Equal(t, sent[0].key, sent[2].key)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
