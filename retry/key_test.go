package retry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/retry"
)

// One operation has one key over all its attempts, and the next operation another.
func TestGeneratedKeyStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{broken, answer(503, ""), answer(201, ""), answer(503, ""), answer(201, "")}}
		tr := transport(t, base, retry.TransportConfig{GenerateKeys: everybody})
		for range 2 {
			req := request(t, "POST", "amount=1")
			resp, err := tr.RoundTrip(req)
			text(t, resp, err)
			if len(req.Header) != 0 {
				t.Errorf("the caller's request was changed: %v", req.Header)
			}
		}
		sent := base.requests()
		if len(sent) != 5 {
			t.Fatalf("%d requests", len(sent))
		}
		first, second := sent[0].key, sent[3].key
		// A string of RFC 8941, 3.3.3, of at least 128 bits.
		if !regexp.MustCompile(`^"[A-Z2-7]{26,}"$`).MatchString(first) || first == second {
			t.Errorf("keys %s and %s", first, second)
		}
		for i, s := range sent {
			if want := []string{first, first, first, second, second}[i]; s.key != want || s.body != "amount=1" {
				t.Errorf("request %d: key %s, body %q; want %s", i+1, s.key, s.body, want)
			}
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
		{"a target that does not honour keys", "POST", "", nil, func(*http.Request) bool { return false }, ""},
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
		resp, err := transport(t, base, retry.TransportConfig{Key: row.key, GenerateKeys: row.generate}).RoundTrip(req)
		text(t, resp, err)
		if got := base.requests()[0].key; got != row.want && (row.want != "*" || len(got) < 20) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// What cannot be a key is not sent, and the body is closed.
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
		if err == nil || !strings.Contains(err.Error(), "Key") || !body.closed || len(base.requests()) != 0 {
			t.Errorf("%s: %v; body closed: %v, %d requests", name, err, body.closed, len(base.requests()))
		}
		if name == "error" && !errors.Is(err, unknown) {
			t.Errorf("%v hides the error of Key", err)
		}
	}
}

// An http.Client calls RoundTrip for each hop. The hops are one operation.
func TestRedirectsKeepTheKey(t *testing.T) {
	var mu sync.Mutex
	var got []string
	mux := http.NewServeMux()
	note := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get(retry.KeyHeader)+" "+string(body))
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
	client := &http.Client{Transport: transport(t, nil, retry.TransportConfig{GenerateKeys: honours})}
	post := func(path, key string) []string {
		t.Helper()
		got = nil
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set(retry.KeyHeader, key)
		}
		resp, err := client.Do(req)
		text(t, resp, err)
		return got
	}
	hops := post("/temporary?to=/again%3fto=/end", "")
	if len(hops) != 3 {
		t.Fatalf("hops %q", hops)
	}
	key := strings.Fields(hops[0])[2]
	for i, path := range []string{"/temporary", "/again", "/end"} {
		if want := "POST " + path + " " + key + " x"; hops[i] != want || len(key) < 20 {
			t.Errorf("hop %d: %q, want %q", i+1, hops[i], want)
		}
	}
	named := 0
	client.Transport = transport(t, nil, retry.TransportConfig{Key: func(*http.Request) (string, error) { named++; return fmt.Sprint("order-", named), nil }})
	if hops = post("/temporary?to=/end", ""); len(hops) != 2 || hops[1] != `POST /end "order-1" x` {
		t.Errorf("a Key that would name the hops apart: %q", hops)
	}
	client.Transport = transport(t, nil, retry.TransportConfig{GenerateKeys: honours})
	hops = post("/temporary?to=/stranger", "")
	if len(hops) != 2 || hops[1] != "POST /stranger  x" {
		t.Errorf("a target that does not honour keys: %q", hops)
	}
	hops = post("/see-other?to=/end", "")
	if len(hops) != 2 || hops[1] != "GET /end  " {
		t.Errorf("a POST that became GET: %q; it needs no key, and must not get one", hops)
	}
	hops = post("/see-other?to=/end", `"mine"`)
	if len(hops) != 2 || hops[1] != `GET /end "mine" ` {
		t.Errorf("the caller's key is not carried on as http.Client does: %q", hops)
	}
}

// Who writes into the map of a header may write its name as HTTP/2 does: it is a key all the same.
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
			if len(sent) != 2 {
				t.Fatalf("%q: sent %d times", value, len(sent))
			}
			for _, s := range sent {
				var lines []string
				for name, values := range s.request.Header {
					if strings.EqualFold(name, retry.KeyHeader) {
						lines = append(lines, values...)
					}
				}
				if len(lines) != 1 || lines[0] != want {
					t.Errorf("%q: sent with the keys %q, want %q", value, lines, want)
				}
			}
			if want := (http.Header{"idempotency-key": {value}}); !reflect.DeepEqual(req.Header, want) {
				t.Errorf("%q: the caller's request was changed: %v", value, req.Header)
			}
		})
	}
}

// A signal is one in any spelling, too.
func TestSignalByAnotherSpelling(t *testing.T) {
	base := &script{steps: []step{answer(503, "")}}
	req := request(t, "GET", "")
	req.Header["do-not-retry"] = []string{"1"}
	resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(req)
	text(t, resp, err)
	if sent := base.requests(); len(sent) != 1 || len(sent[0].request.Header) != 1 {
		t.Errorf("sent %d times with %v", len(sent), sent[0].request.Header)
	}
}

// A base that does not say which request it answers breaks no redirect's key.
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
	client := &http.Client{Transport: transport(t, anonymous, retry.TransportConfig{GenerateKeys: everybody})}
	resp, err := client.Post("http://service.test/", "text/plain", strings.NewReader("x"))
	text(t, resp, err)
	sent := base.requests()
	if len(sent) != 3 || sent[0].key == "" || sent[1].key != sent[0].key || sent[2].key != sent[0].key {
		t.Errorf("%d hops: %q, %q, ...", len(sent), sent[0].key, sent[1].key)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
