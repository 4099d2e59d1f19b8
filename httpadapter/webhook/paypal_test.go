package webhook_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// The message and its certificate are from the tests of PayPal-Java-SDK (ValidateCertTest.java,
// clientCertTest.crt). The root and the intermediate are from paypalrestsdk 1.13.3.
const (
	payPalWebhook = "0FV983392A0531201"
	payPalCert    = "https://api.sandbox.paypal.com/v1/notifications/certs/" +
		"CERT-360caa42-fca2a594-1d93a270"
	payPalSent      = "2019-08-29T10:49:33Z"
	payPalSignature = "K7DF5+hOyGS6v0xTZ9PkEO+BFNQmpryxw2hFlXbHgmxpu+883ldEC9HcL6ccEmB8sfy80y/Q" +
		"3qcZZL1MR8Qi0e1ysylVj/yROgKK6zBsQPoNmgXC8yTiNoAjULuhk5Aoau0Itk3nrkgAfji1zvADlErMFM9VZe2n" +
		"DvhM3nDMLjCi/K5fRjWp3eGo6Nx17GX/WIEibeKDyS+YdJMex3i+KO4aWmm9zznC/FJ5Y/ntd0MxOJNrM0r0f3y7" +
		"c3e3sO5pB3oPgN6KzKVS5P6AWHqtS8acD3DjgCKZ1uqKz7q954G1aBz2/m0wRGOFFsv0/D3FE2uIheRRmoQtVSOA" +
		"X7Aupg=="
	payPalSigHeader = "Paypal-Transmission-Sig"
)

func payPalFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/paypal/" + name)
	require.NoError(t, err)
	return data
}

func payPalMessage(t testing.TB) *webhook.Message {
	return &webhook.Message{Now: at(payPalSent).Add(time.Second), Body: payPalFile(t, "body.json"),
		Header: headers("Paypal-Transmission-Id", "afa30d40-ca4a-11e9-ab68-7d4e2605c70c",
			"Paypal-Transmission-Time", payPalSent, "Paypal-Cert-Url", payPalCert,
			"Paypal-Auth-Algo", "SHA256withRSA", payPalSigHeader, payPalSignature)}
}

// certServer answers like PayPal.
type certServer struct {
	asked  []string
	answer func() *http.Response
}

func (c *certServer) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked = append(c.asked, r.URL.String())
	return c.answer(), nil
}

func answering(status int, body []byte) *certServer {
	return &certServer{answer: func() *http.Response {
		return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)),
			Header: headers("Location", "https://api.paypal.com/v1/notifications/certs/CERT-2")}
	}}
}

func payPal(t testing.TB, server *certServer, roots []byte) webhook.Provider {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(roots))
	return built(t)(webhook.PayPal(webhook.PayPalConfig{Transport: server, Roots: pool,
		WebhookIDs: []string{"another", payPalWebhook}}))
}

func sandbox(t testing.TB) (webhook.Provider, *certServer) {
	t.Helper()
	server := answering(http.StatusOK, payPalFile(t, "chain.pem"))
	return payPal(t, server, payPalFile(t, "root.pem")), server
}

func TestPayPalVector(t *testing.T) {
	p, server := sandbox(t)
	for range 3 {
		require.NoError(t, p.Precheck(payPalMessage(t).Header, payPalMessage(t).Now))
		got, err := p.Verify(payPalMessage(t))
		require.NoError(t, err)
		assert.Equal(t, webhook.Identity{ID: "WH-7MU294299R542214K-4N1831857K851783H",
			Type: "PAYMENTS.PAYMENT.CREATED", Signed: true, Sent: at(payPalSent)}, got)
	}
	assert.Equal(t, []string{payPalCert}, server.asked, "kept")
}

func TestPayPalAnythingElseIsRefused(t *testing.T) {
	p, _ := sandbox(t)
	wantAnyChangeRefused(t, p, payPalSigHeader, func() *webhook.Message { return payPalMessage(t) })
	for name, value := range map[string]string{"Paypal-Transmission-Id": "x",
		"Paypal-Transmission-Time": "2019-08-29T10:49:34Z", "Paypal-Auth-Algo": "SHA1withRSA"} {
		for _, v := range []string{value, ""} {
			m := payPalMessage(t)
			m.Header.Set(name, v)
			wantRefused(t, p, m, name)
		}
		m := payPalMessage(t)
		m.Header.Add(name, m.Header.Get(name))
		wantRefused(t, p, m, name+" twice")
	}
	other := built(t)(webhook.PayPal(webhook.PayPalConfig{WebhookIDs: []string{"0FV983392A0531202"},
		Transport: answering(200, payPalFile(t, "chain.pem")), Roots: func() *x509.CertPool {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(payPalFile(t, "root.pem"))
			return pool
		}()}))
	wantRefused(t, other, payPalMessage(t), "another webhook")
}

func TestPayPalTimes(t *testing.T) {
	p, _ := sandbox(t)
	const most = 30*24*time.Hour + 5*time.Minute
	for off, want := range map[time.Duration]error{most: nil, most + time.Second: webhook.ErrStale,
		-5 * time.Minute: nil, -5*time.Minute - time.Second: webhook.ErrStale} {
		m := payPalMessage(t)
		m.Now = at(payPalSent).Add(off)
		_, err := p.Verify(m)
		assert.ErrorIs(t, err, want, off)
		assert.ErrorIs(t, p.Precheck(m.Header, m.Now), want, off)
	}
}

// Certificates are fetched only from PayPal's hosts, whatever address a sender gives.
func TestPayPalFetchesFromPayPalAlone(t *testing.T) {
	p, server := sandbox(t)
	path := "/v1/notifications/certs/CERT-1"
	for _, url := range []string{"http://api.paypal.com" + path, "https://evil.example" + path,
		"https://api.paypal.com.evil.example" + path, "https://notpaypal.com" + path,
		"https://api.paypal.com@evil.example" + path, "https://u:p@api.paypal.com" + path,
		"https://api.paypal.com:8443" + path, "https://api.paypal.com/v1/other/CERT-1",
		"https://api.paypal.com/v1/notifications/certs/../x",
		"https://api.paypal.com" + path + "?a=b",
		"https://evil.example/.paypal.com" + path, "https://evil.example#.paypal.com" + path,
		"file:///etc/passwd", "//api.paypal.com" + path, ""} {
		m := payPalMessage(t)
		m.Header.Set("Paypal-Cert-Url", url)
		wantRefused(t, p, m, url)
		assert.ErrorIs(t, p.Precheck(m.Header, m.Now), webhook.ErrSignature, url)
	}
	assert.Empty(t, server.asked)
}

func TestPayPalCertificatesThatAreNoGood(t *testing.T) {
	chain, root := payPalFile(t, "chain.pem"), payPalFile(t, "root.pem")
	leaf, _ := pem.Decode(chain)
	large := append(bytes.Repeat([]byte("\n"), 64<<10), chain...)
	for what, server := range map[string]*certServer{"none": answering(200, nil),
		"no PEM": answering(200, []byte("hello")), "not found": answering(404, chain),
		"moved": answering(302, chain), "too large": answering(200, large),
		"without its intermediate": answering(200, pem.EncodeToMemory(leaf)),
		"of DigiCert":              answering(200, root)} {
		_, err := payPal(t, server, root).Verify(payPalMessage(t))
		require.Error(t, err, what)
		assert.Len(t, server.asked, 1, what)
	}
	p := payPal(t, answering(200, chain), selfSigned(t, "x.paypal.com"))
	_, err := p.Verify(payPalMessage(t))
	assert.ErrorContains(t, err, "certificate", "another root")
	late := payPalMessage(t)
	late.Now = at("2021-05-25T00:00:00Z")
	late.Header.Set("Paypal-Transmission-Time", "2021-05-25T00:00:00Z")
	p, _ = sandbox(t)
	_, err = p.Verify(payPalMessage(t))
	require.NoError(t, err)
	_, err = p.Verify(late)
	assert.ErrorContains(t, err, "expired", "kept, and no longer good")
}

// selfSigned returns a certificate for name that is signed by itself.
func selfSigned(t testing.TB, name string) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name},
		Subject:   pkix.Name{CommonName: "messageverificationcerts.paypal.com"},
		NotBefore: at("2019-01-01T00:00:00Z"), NotAfter: at("2030-01-01T00:00:00Z"), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A trusted certificate for another host than PayPal's cannot sign a message.
func TestPayPalCertificateOfAnotherHost(t *testing.T) {
	for name, want := range map[string]string{"evil.example": "not of a host",
		"notpaypal.com":                       "not of a host",
		"messageverificationcerts.paypal.com": "no valid signature"} {
		cert := selfSigned(t, name)
		_, err := payPal(t, answering(200, cert), cert).Verify(payPalMessage(t))
		assert.ErrorContains(t, err, want, name)
	}
}

// A sender without a key cannot make the receiver send many requests.
func TestPayPalFetchesAreBounded(t *testing.T) {
	server := answering(404, nil)
	p := payPal(t, server, payPalFile(t, "root.pem"))
	m := payPalMessage(t)
	for i := range 100 {
		m.Header.Set("Paypal-Cert-Url", payPalCert+strconv.Itoa(i))
		_, err := p.Verify(m)
		require.Error(t, err)
	}
	assert.Len(t, server.asked, 8)
	m.Now = m.Now.Add(time.Minute)
	_, _ = p.Verify(m)
	assert.Len(t, server.asked, 9, "a minute later")
}

// Four bytes are enough to forge a CRC-32. So a transmission must not carry another event.
func TestPayPalTransmissionCarriesOneEvent(t *testing.T) {
	p, _ := sandbox(t)
	m := payPalMessage(t)
	m.Body = sameCRC([]byte(`{"id":"WH-forged","event_type":"PAYMENT.SALE.COMPLETED"}`), m.Body)
	forged, err := p.Verify(m)
	require.NoError(t, err, "PayPal's signature covers no more")
	assert.Equal(t, "WH-forged", forged.ID)
	wantRefused(t, p, payPalMessage(t), "one event for each transmission")
	p, _ = sandbox(t)
	_, err = p.Verify(payPalMessage(t))
	require.NoError(t, err)
	wantRefused(t, p, m, "the transmission is that of another event")
}

func TestPayPalNeedsWebhookIDs(t *testing.T) {
	for what, ids := range map[string][]string{"none": nil, "empty": {payPalWebhook, ""},
		"a bar": {"a|b"}} {
		_, err := webhook.PayPal(webhook.PayPalConfig{WebhookIDs: ids})
		wantInputError(t, err, what)
	}
}

func FuzzPayPalHeaders(f *testing.F) {
	p, server := sandbox(f)
	f.Add(payPalCert, payPalSent, payPalSignature)
	f.Add("https://evil.example/", "1", "")
	f.Fuzz(func(t *testing.T, url, sent, signature string) {
		server.asked = nil
		m := payPalMessage(t)
		m.Header.Set("Paypal-Cert-Url", url)
		m.Header.Set("Paypal-Transmission-Time", sent)
		m.Header.Set(payPalSigHeader, signature)
		_, err := p.Verify(m)
		assert.False(t, err == nil && (sent != payPalSent || signature != payPalSignature),
			fmt.Sprint(url, sent, signature))
		for _, at := range server.asked {
			assert.True(t, strings.HasPrefix(at, "https://"), at)
			assert.Contains(t, at, ".paypal.com")
		}
	})
}
