package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// A request under way at a shutdown gets its answer, and the exit code is that of success.
func TestDrain(t *testing.T) {
	var n atomic.Int64
	began, release := make(chan struct{}), make(chan struct{})
	r := start(t, counted(&n, func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-release
		_, _ = io.WriteString(w, "paid")
	}), "drain-delay: 200ms\n", scoped, "--grace", "1m")
	got := make(chan answer, 1)
	go func() { got <- r.pay("k1") }()
	await(t, began)
	r.end()
	assert.Eventually(t, func() bool {
		status, body := r.get("/readyz")
		return status == 503 && strings.Contains(body, "draining")
	}, patience, time.Millisecond)
	assert.Eventually(t, func() bool { // new connections are refused
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp",
			strings.TrimPrefix(r.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, patience, 10*time.Millisecond)
	close(release)
	(<-got).wants(t, 200, "paid")
	assert.Equal(t, cli.Done, r.ended(), r.log)
}

// If the service is slower than the grace, its requests are cut off, and the exit code says so.
func TestDrainCutsOff(t *testing.T) {
	began := make(chan struct{})
	r := start(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(began)
		<-r.Context().Done()
	}, "", scoped, "--grace", "50ms")
	got := make(chan answer, 1)
	go func() { got <- r.pay("k1") }()
	await(t, began)
	r.end()
	assert.Equal(t, cli.No, r.ended())
	assert.Contains(t, r.log.String(), "cut off")
	<-got
}

// certify writes a certificate for 127.0.0.1 with a serial number.
func certify(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial),
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
}

// SIGHUP loads new certificates. If they cannot be read, the old ones stay.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certify(t, cert, key, 1)
	var n atomic.Int64
	r := start(t, counted(&n, nil), "tls-cert: "+cert+"\ntls-key: "+key+"\n", scoped)
	address, secure := strings.CutPrefix(r.url, "https://")
	require.True(t, secure, r.url)
	serial := func() int64 {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the serial is looked at
		c, err := d.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	assert.EqualValues(t, 1, serial())
	hup := func(says string) {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(r.log.String(), says) },
			patience, time.Millisecond)
	}
	certify(t, cert, key, 2)
	hup("were read again")
	assert.EqualValues(t, 2, serial())
	require.NoError(t, os.WriteFile(cert, []byte("nothing"), 0o600))
	hup("stay as they are")
	assert.EqualValues(t, 2, serial())
}

// Without Redis the command ends with an error that shows no password.
func TestCannotServe(t *testing.T) {
	var out, errOut buffer
	args := []string{"--redis", "redis://:hunter2@127.0.0.1:1", scoped, "--upstream",
		"http://127.0.0.1:1"}
	streams := &cli.Streams{Out: &out, Err: &errOut}
	assert.Equal(t, cli.Usage, cli.Run(t.Context(), streams, Command(), args...))
	assert.Contains(t, errOut.String(), "--redis")
	assert.NotContains(t, errOut.String(), "hunter2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, cli.Interrupted, cli.Run(ctx, streams, Command(), args...))
	assert.Equal(t, cli.Done,
		cli.Run(t.Context(), streams, Command(), append(args, "--check")...))
	assert.Contains(t, out.String(), "settings are right")
}
