package proxy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

func parse(args ...string) (*Options, error) {
	o := new(Options)
	return o, cli.Parse(o.command(), args...)
}

// One error names every wrong setting.
func TestEveryWrongSettingIsNamed(t *testing.T) {
	file := written(t, "proxy.yaml", `
admin: 0.0.0.0:9900
timeout: 0s
window: 1s
namespace: not ours
tls-cert: cert.pem
jwt-issuer: me
routes:
- {path: pay, keep: all}
- {path: /a, methods: [post]}
- {path: /A/}
webhooks:
- {path: /hooks, provider: github, endpoint: ci}
- {path: /hooks2, provider: gitlab, endpoint: ci2, secrets: [{env: NOT_SET}]}
- {path: /hooks3, provider: gitlab, endpoint: ci3}
- {path: /hooks4, provider: square, endpoint: ci3}
- {path: /hooks5, provider: slack, endpoint: s, secrets: [{env: HOME, file: x}]}
- {path: /hooks6, provider: stripe, endpoint: p, window: 1h, secrets: [{env: HOME}]}
`)
	_, err := parse("--config", file, "--upstream", "http://service/x")
	require.Error(t, err)
	for _, part := range []string{"--redis is missing", "--upstream is not a URL",
		"one of --principal-header, --jwt-claim and --unscoped", `--admin: "0.0.0.0:9900"`,
		"--tls-cert and --tls-key need each other", "--timeout is 0s",
		`routes[0]: path is "pay"`, `routes[0]: keep is "all"`,
		`routes[2]: path "/A/" is also that of routes[1]`, `webhooks[3]: endpoint "ci3" is also`} {
		assert.ErrorContains(t, err, part)
	}
	_, err = parse("--config", file, "--upstream", "http://service")
	assert.ErrorContains(t, err, "--namespace")
	_, err = parse("--config", file, "--upstream", "http://service", "--namespace",
		"n", "--window", "24h")
	for _, part := range []string{`routes[1] /a: `, "Methods", "webhooks[0] /hooks: ",
		"the environment has no NOT_SET", `provider is "gitlab"`, "url is missing",
		"a secret has one of env and file", "webhooks[5] /hooks6: ", "ShortWindow"} {
		assert.ErrorContains(t, err, part)
	}
}

// The file has the same settings as the flags, and flags override it. JSON with tabs is read, too.
func TestFile(t *testing.T) {
	t.Setenv("PROXY_TEST_SECRET", "s")
	args := []string{"--redis", "redis://127.0.0.1:1", "--upstream", "http://127.0.0.1:1",
		"--listen", "127.0.0.1:7", "--config"}
	for name, text := range map[string]string{
		"yaml": "listen: 127.0.0.1:9\nwindow: 48h\noptional: true\nprincipal-header: X-Account\n" +
			"routes:\n- path: /pay\n  timeout: 5s\n",
		"json": "{\n\t\"listen\": \"127.0.0.1:9\",\n\t\"window\": \"48h\", \"optional\": true,\n" +
			"\"principal-header\": \"X-Account\", \"routes\": [{\"path\": \"/pay\", \"timeout\": \"5s\"}]}\n",
	} {
		o, err := parse(append(args, written(t, "f."+name, text))...)
		require.NoError(t, err, name)
		assert.Equal(t, "127.0.0.1:7", o.Listen)
		assert.Equal(t, 48*time.Hour, o.Window)
		assert.True(t, o.Optional)
		assert.Equal(t, []Route{{Path: "/pay", Timeout: 5 * time.Second}}, o.Routes)
	}
	for text, want := range map[string]string{
		"windw: 1h\n":               `"windw" is not a setting`,
		"check: true\n":             `"check" is not a setting`,
		"window: 2 days\n":          "a duration is written as",
		"routes:\n- {pth: /}\n":     "field pth not found",
		"webhooks: {path: /}\n":     "cannot unmarshal",
		"listen: [a, b]\n":          "cannot unmarshal",
		"routes:\n- {timeout: x}\n": "cannot unmarshal",
	} {
		_, err := parse(append(args, written(t, "f.yaml", text))...)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := parse(append(args, "/nowhere")...)
	assert.ErrorContains(t, err, "--config: ")
}

// bearer is a request with a token.
func bearer(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) *http.Request {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "bearer "+text)
	return r
}

// A principal comes only from a verified token, with an algorithm of its key.
func TestTokens(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, other, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	p := Principal{Claim: "sub", KeyFile: written(t, "key.pem", string(public)), Issuer: "me",
		Audience: "payments"}
	require.NoError(t, p.read())
	claims := func(more jwt.MapClaims) jwt.MapClaims {
		all := jwt.MapClaims{"sub": "alice", "iss": "me", "aud": "payments",
			"exp": time.Now().Add(time.Hour).Unix()}
		maps.Copy(all, more)
		maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
		return all
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	good := jwt.SigningMethodES256
	for want, requests := range map[string][]*http.Request{
		"alice": {bearer(t, good, private, claims(nil))},
		"": {
			bearer(t, good, foreign, claims(nil)),
			bearer(t, jwt.SigningMethodHS256, public, claims(nil)),
			bearer(t, jwt.SigningMethodHS256, der, claims(nil)),
			bearer(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil)),
			bearer(t, jwt.SigningMethodEdDSA, other, claims(nil)),
			bearer(t, good, private,
				claims(jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()})),
			bearer(t, good, private, claims(jwt.MapClaims{"exp": nil})),
			bearer(t, good, private, claims(jwt.MapClaims{"iss": "you"})),
			bearer(t, good, private, claims(jwt.MapClaims{"aud": "other"})),
			bearer(t, good, private, claims(jwt.MapClaims{"sub": nil})),
			bearer(t, good, private, claims(jwt.MapClaims{"sub": 7})),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil),
		},
	} {
		for i, r := range requests {
			name, err := p.scope(r)
			require.NoError(t, err)
			assert.Equal(t, want, name, "request %d", i)
		}
	}
}

// Clients must be told apart in some way, with all settings that this way needs.
func TestPrincipalSettings(t *testing.T) {
	t.Setenv("PROXY_TEST_SECRET", "0123456789abcdef")
	for want, p := range map[string]Principal{
		"is required":               {},
		"one of --principal-header": {Header: "X", Unscoped: true},
		"need --jwt-claim":          {Header: "X", Issuer: "me"},
		"nobody verifies":           {Claim: "sub"},
		"has no NOT_SET":            {Claim: "sub", SecretEnv: "NOT_SET"},
		"no PEM block":              {Claim: "sub", KeyFile: written(t, "key", "x")},
	} {
		assert.ErrorContains(t, p.read(), want)
	}
	p := Principal{Claim: "sub", SecretEnv: "PROXY_TEST_SECRET"}
	require.NoError(t, p.read())
	name, err := p.scope(bearer(t, jwt.SigningMethodHS256, []byte("0123456789abcdef"),
		jwt.MapClaims{"sub": "bob", "exp": time.Now().Add(time.Hour).Unix()}))
	require.NoError(t, err)
	assert.Equal(t, "bob", name)
}
