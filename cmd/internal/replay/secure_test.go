package replay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// certificate makes a certificate that is its own authority, and writes it and its key to files.
func certificate(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t,
			os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}),
				0o600))
		return file
	}
	certFile, keyFile = write("cert.pem", "CERTIFICATE", der),
		write("key.pem", "PRIVATE KEY", secret)
	pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	return pair, certFile, keyFile
}

// The broker requires a client certificate, a name and a password.
func TestTLSAndSASL(t *testing.T) {
	pair, certFile, keyFile := certificate(t)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	t.Setenv("RIGHT", "secret")
	t.Setenv("WRONG", "secre")
	own := []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12}),
		kgo.SASL(plain.Auth{User: "plain-user", Pass: "secret"}.AsMechanism()),
	}
	r := newRigOn(t, own, kfake.EnableSASL(), kfake.Superuser("PLAIN", "plain-user", "secret"),
		kfake.Superuser("SCRAM-SHA-256", "user-256", "secret"),
		kfake.Superuser("SCRAM-SHA-512", "user-512", "secret"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}))
	r.park(3)
	sure := []string{"--tls", "--tls-ca", certFile, "--tls-cert", certFile, "--tls-key", keyFile}
	with := func(args ...string) []string { return append(args, sure...) }
	for _, refused := range [][]string{
		with("--sasl-user", "user-512", "--sasl-password-env", "WRONG"),
		with("--sasl-user", "plain-user", "--sasl-password-env", "WRONG", "--sasl-mechanism",
			"plain"),
		with(),
		{"--tls", "--tls-ca", certFile, "--sasl-user", "user-512", "--sasl-password-env", "RIGHT"},
		{"--tls", "--tls-cert", certFile, "--tls-key", keyFile, "--sasl-user", "user-512",
			"--sasl-password-env", "RIGHT"},
	} {
		r.wantIn(r.replay(cli.Usage, refused...), "--brokers: ")
	}
	for _, args := range [][]string{
		with("--sasl-user", "user-512", "--sasl-password-env", "RIGHT"),
		with("--sasl-user", "user-256", "--sasl-password-env", "RIGHT", "--sasl-mechanism",
			"scram-sha-256"),
		with("--sasl-user", "plain-user", "--sasl-password-env", "RIGHT", "--sasl-mechanism",
			"plain"),
	} {
		r.wantIn(r.replay(cli.Done, append(args, "--max", "1")...), "1 sent")
	}
	sent := r.ids(orders)
	assert.Len(t, sent, 3, "sent %v", sent)
}
