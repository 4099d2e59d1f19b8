package webhook

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	payPalCertPath    = "/v1/notifications/certs/"
	payPalCertBytes   = 64 << 10
	payPalCertTimeout = 10 * time.Second
	payPalFetches     = 8 // a minute: a sender without a key must not make us send many requests
	payPalKept        = 16
)

var errPayPalFetches = errors.New("webhook: too many certificates of PayPal to fetch at a time")

// payPalCertURL reports whether a certificate may be fetched from the URL.
func payPalCertURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.User == nil && u.RawQuery == "" &&
		u.Fragment == "" && (u.Port() == "" || u.Port() == "443") && payPalHost(u.Hostname()) &&
		strings.HasPrefix(u.Path, payPalCertPath) && !strings.Contains(u.Path, "..")
}

func payPalHost(name string) bool {
	return strings.HasSuffix(strings.ToLower(name), ".paypal.com")
}

// payPalCerts fetches certificates, and keeps those that were good when they were fetched.
type payPalCerts struct {
	client http.Client
	roots  *x509.CertPool

	mu   sync.Mutex // of kept
	kept map[string][]*x509.Certificate

	fetching sync.Mutex // one fetch at a time: the next call may find the certificate kept
	since    time.Time  // of fetches
	fetches  int
}

func newPayPalCerts(cfg PayPalConfig) *payPalCerts {
	return &payPalCerts{roots: cfg.Roots, kept: map[string][]*x509.Certificate{},
		client: http.Client{Transport: cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("webhook: PayPal's certificates do not redirect")
			}}}
}

// get returns the certificate at a URL that payPalCertURL has allowed, if it is good now.
func (c *payPalCerts) get(at string, now time.Time) (*x509.Certificate, error) {
	chain := c.known(at)
	if chain == nil {
		var err error
		if chain, err = c.load(at, now); err != nil {
			return nil, err
		}
	}
	return chain[0], c.check(chain, now)
}

func (c *payPalCerts) known(at string) []*x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[at]
}

// load fetches a certificate with its intermediates, and keeps them if they are good.
func (c *payPalCerts) load(at string, now time.Time) ([]*x509.Certificate, error) {
	c.fetching.Lock()
	defer c.fetching.Unlock()
	if chain := c.known(at); chain != nil {
		return chain, nil
	}
	if now.Sub(c.since).Abs() >= time.Minute {
		c.since, c.fetches = now, 0
	}
	if c.fetches++; c.fetches > payPalFetches {
		return nil, errPayPalFetches
	}
	chain, err := c.fetch(at)
	if err != nil {
		return nil, err
	}
	if err := c.check(chain, now); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= payPalKept {
		clear(c.kept)
	}
	c.kept[at] = chain
	return chain, nil
}

func (c *payPalCerts) fetch(at string) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), payPalCertTimeout) // Verify has none
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("webhook: fetch PayPal's certificate: %w", err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("webhook: fetch PayPal's certificate: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(res.Body, payPalCertBytes+1))
	if err != nil {
		return nil, fmt.Errorf("webhook: fetch PayPal's certificate: %w", err)
	}
	if res.StatusCode != http.StatusOK || len(data) > payPalCertBytes {
		return nil, fmt.Errorf("webhook: fetch PayPal's certificate: status %d, %d bytes",
			res.StatusCode, len(data))
	}
	var chain []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("webhook: read PayPal's certificate: %w", err)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errors.New("webhook: read PayPal's certificate: there is none")
	}
	return chain, nil
}

// check returns an error if a chain is not PayPal's, or is not valid now.
func (c *payPalCerts) check(chain []*x509.Certificate, now time.Time) error {
	if !slices.ContainsFunc(chain[0].DNSNames, payPalHost) {
		return errors.New("webhook: the certificate is not of a host below paypal.com")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: between,
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("webhook: PayPal's certificate: %w", err)
	}
	return nil
}

// signedBy reports whether the key of cert has signed the digest.
func signedBy(cert *x509.Certificate, digest [sha256.Size]byte, signature []byte) bool {
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	return ok && rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil
}
