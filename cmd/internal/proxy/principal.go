package proxy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/httpadapter"
)

// Principal says how the proxy tells clients apart. Exactly one way is required, because otherwise
// two clients that use the same key would see each other's answers.
type Principal struct {
	// Header names a header with the client's name, or with a secret that only the client has.
	Header string
	// Claim names a claim of the JSON Web Token in Authorization, which is verified with the key in
	// KeyFile or SecretEnv.
	Claim, KeyFile, SecretEnv string
	Issuer, Audience          string
	// Unscoped says that the service has one client.
	Unscoped bool

	key    any
	parser *jwt.Parser
}

func (p *Principal) flags(f *cli.Flags) {
	f.StringVar(&p.Header, "principal-header", "",
		"request `header` that tells clients apart: one that a gateway in front sets, or Authorization where its "+
			"value stays the same for as long as a client retries")
	f.StringVar(&p.Claim, "jwt-claim", "",
		"`claim` that tells clients apart, such as sub, of the verified token in Authorization: Bearer")
	f.StringVar(&p.KeyFile, "jwt-key-file", "", "`file` with the public key of tokens, in PEM")
	f.StringVar(&p.SecretEnv, "jwt-secret-env", "",
		"`variable` of the environment that holds the secret of tokens (HS256, HS384, HS512)")
	f.StringVar(&p.Issuer, "jwt-issuer", "", "`issuer` that a token must have")
	f.StringVar(&p.Audience, "jwt-audience", "", "`audience` that a token must have")
	f.BoolVar(&p.Unscoped, "unscoped", false, "the service has one client, who makes all keys")
}

// read checks the settings and reads the key.
func (p *Principal) read() error {
	ways := slices.DeleteFunc([]bool{p.Header != "", p.Claim != "", p.Unscoped},
		func(given bool) bool { return !given })
	if len(ways) != 1 {
		return errors.New("one of --principal-header, --jwt-claim and --unscoped is required: " +
			"clients that are not told apart would get each other's answers")
	}
	isKey := p.KeyFile != "" || p.SecretEnv != ""
	switch {
	case p.Claim == "" && (isKey || p.Issuer != "" || p.Audience != ""):
		return errors.New("--jwt-key-file, --jwt-secret-env, --jwt-issuer and --jwt-audience need --jwt-claim")
	case p.Claim == "":
		return nil
	case (p.KeyFile == "") == (p.SecretEnv == ""):
		return errors.New("--jwt-claim needs one of --jwt-key-file and --jwt-secret-env: " +
			"anybody can write a token that nobody verifies")
	}
	return p.readKey()
}

// readKey allows only the algorithms for this kind of key. A public key must never verify an HMAC,
// because everybody knows it.
func (p *Principal) readKey() error {
	var methods []string
	if p.SecretEnv != "" {
		secret := os.Getenv(p.SecretEnv)
		if secret == "" {
			return fmt.Errorf("--jwt-secret-env: the environment has no %s", p.SecretEnv)
		}
		p.key, methods = []byte(secret), []string{"HS256", "HS384", "HS512"}
	} else {
		data, err := os.ReadFile(p.KeyFile)
		if err != nil {
			return fmt.Errorf("--jwt-key-file: %w", err)
		}
		if p.key, methods, err = publicKey(data); err != nil {
			return fmt.Errorf("--jwt-key-file: %s: %w", p.KeyFile, err)
		}
	}
	opts := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithExpirationRequired()}
	if p.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(p.Issuer))
	}
	if p.Audience != "" {
		opts = append(opts, jwt.WithAudience(p.Audience))
	}
	p.parser = jwt.NewParser(opts...)
	return nil
}

func publicKey(data []byte) (key any, methods []string, err error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, nil, errors.New("has no PEM block PUBLIC KEY")
	}
	if key, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return nil, nil, err
	}
	switch key.(type) {
	case *rsa.PublicKey:
		return key, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		return key, []string{"ES256", "ES384", "ES512"}, nil
	case ed25519.PublicKey:
		return key, []string{"EdDSA"}, nil
	}
	return nil, nil, fmt.Errorf("has a key of the kind %T, which no token is signed with", key)
}

// scope returns the client that a request belongs to. The empty scope gets 401.
func (p *Principal) scope(r *http.Request) (string, error) {
	switch {
	case p.Unscoped:
		return httpadapter.Unscoped(r)
	case p.Header != "":
		return single(r, p.Header), nil
	}
	scheme, text, _ := strings.Cut(single(r, "Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil
	}
	claims := jwt.MapClaims{}
	if _, err := p.parser.ParseWithClaims(strings.TrimSpace(text), claims,
		func(*jwt.Token) (any, error) { return p.key, nil }); err != nil {
		return "", nil //nolint:nilerr // a token that is not believed is nobody's
	}
	name, _ := claims[p.Claim].(string)
	return name, nil
}

// single returns the value of a header that occurs once. If the header had two lines, the service
// might believe the line that the proxy does not use.
func single(r *http.Request, name string) string {
	if values := r.Header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
