package proxy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command takes the settings file of the guide.
func TestGuideSettings(t *testing.T) {
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey,
		private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"cert.pem":   {Type: "CERTIFICATE", Bytes: cert},
		"key.pem":    {Type: "PRIVATE KEY", Bytes: key},
		"issuer.pem": {Type: "PUBLIC KEY", Bytes: public},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stripe"), []byte("whsec_x\n"), 0o600))
	file := filepath.Join(dir, "proxy.yaml")
	text := strings.ReplaceAll(block(t, "yaml", 0), "/etc/onceward", dir)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	check := exec.CommandContext(t.Context(), command, "proxy", "--check", "--config", file)
	check.Env = append(os.Environ(), "REDIS_PASSWORD=p")
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "the settings are right\n", string(out))
}

// with starts the service and the proxy with a file of settings.
func with(t *testing.T, change *strings.Replacer, settings string, args ...string) *site {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
	return serve(t, change, append(args, "--config", file)...)
}

// An event that is delivered ten times at once, signed by the official library, reaches the
// service once; a forged one does not.
func TestWebhookDeliveredTwice(t *testing.T) {
	const secret, body = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", `{"type":"paid"}`
	t.Setenv("PROXY_TEST_SECRET", secret)
	s := with(t, strings.NewReplacer(), "webhooks:\n- {path: /hooks/billing, to: /payments, "+
		"provider: standard, endpoint: billing, secrets: [{env: PROXY_TEST_SECRET}]}\n")
	signer, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	now := time.Now()
	signature, err := signer.Sign("evt1", now, []byte(body))
	require.NoError(t, err)
	deliver := func(signature string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/hooks/billing",
			strings.NewReader(body))
		if !assert.NoError(t, err) {
			return 0
		}
		req.Header.Set("Webhook-Id", "evt1")
		req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		req.Header.Set("Webhook-Signature", signature)
		resp, err := http.DefaultClient.Do(req)
		if !assert.NoError(t, err) {
			return 0
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusUnauthorized, deliver("v1,"+strings.Repeat("A", 43)+"="))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { // a provider sends again after 409
			assert.Eventually(t, func() bool {
				return deliver(signature) == http.StatusOK
			}, patience, 50*time.Millisecond)
		})
	}
	all.Wait()
	assert.Len(t, s.effects()[body], 1)
}

// If the proxy dies during a request on an irreversible route, nothing is run again, and an
// operator finds the key.
func TestIrreversibleKilled(t *testing.T) {
	slow := strings.NewReplacer("self.send_response(201)",
		"__import__('time').sleep(600); self.send_response(201)")
	s := with(t, slow, "routes:\n- {path: /, irreversible: true}\n", "--lease", "1s")
	answered := make(chan int, 1)
	go func() {
		status, _ := s.post(http.DefaultClient, "k1", "pay")
		answered <- status
	}()
	require.Eventually(t, func() bool { return len(s.effects()["pay"]) == 1 }, patience,
		10*time.Millisecond)
	s.proxy.kill()
	assert.Zero(t, <-answered)
	s.startProxy()
	list := func() string {
		return output(t, command, "uncertain", "--redis", "redis://"+s.redis, "--prefix", s.prefix)
	}
	require.Eventually(t, func() bool {
		status, _ := s.post(http.DefaultClient, "k1", "pay")
		return status == http.StatusConflict && strings.Contains(list(), "1 uncertain")
	}, patience, 100*time.Millisecond)
	assert.Len(t, s.effects()["pay"], 1)
}
