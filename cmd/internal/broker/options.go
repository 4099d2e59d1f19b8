// Package broker opens connections to Kafka for operators' commands, by flags that the commands
// share. Passwords come only from the environment.
package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// Options are the flags. Use them after Check.
type Options struct {
	// Brokers are bootstrap addresses.
	Brokers []string
	TLS     TLS
	SASL    SASL

	brokers, passwordEnv string
}

// TLS says how to encrypt.
type TLS struct {
	On            bool
	CA, Cert, Key string // files
}

// SASL says how to authenticate.
type SASL struct {
	User, Password, Mechanism string
}

// Names are the names of the flags.
var Names = []string{"brokers", "tls", "tls-ca", "tls-cert", "tls-key", "sasl-user",
	"sasl-password-env", "sasl-mechanism"}

// Flags registers the flags.
func (o *Options) Flags(f *cli.Flags) {
	f.StringVar(&o.brokers, "brokers", "", "bootstrap `addresses` host:port,...")
	f.BoolVar(&o.TLS.On, "tls", false, "encrypt connections to Kafka")
	f.StringVar(&o.TLS.CA, "tls-ca", "",
		"PEM `file` with the brokers' authorities; the system's otherwise")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "PEM `file` with the client's certificate")
	f.StringVar(&o.TLS.Key, "tls-key", "", "PEM `file` with the client's key")
	f.StringVar(&o.SASL.User, "sasl-user", "", "`name` to authenticate with")
	f.StringVar(&o.passwordEnv, "sasl-password-env", "",
		"`variable` of the environment that holds the password")
	f.ChoiceVar(&o.SASL.Mechanism, "sasl-mechanism", "",
		"`mechanism` to authenticate by (default the last)", "plain", "scram-sha-256", "scram-sha-512")
	f.Setting(Names...)
}

// Given reports whether any of the flags is set.
func (o *Options) Given() bool {
	return o.brokers != "" || o.passwordEnv != "" || o.TLS != (TLS{}) || o.SASL != (SASL{})
}

// Check parses the flags, and connects to nothing. Its errors name the flag.
func (o *Options) Check() error {
	if o.brokers == "" {
		return errors.New("--brokers is missing")
	}
	o.Brokers = nil
	for a := range strings.SplitSeq(o.brokers, ",") {
		a = strings.TrimSpace(a)
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return fmt.Errorf("--brokers: %q is not host:port", a)
		}
		o.Brokers = append(o.Brokers, a)
	}
	if o.SASL.Password = os.Getenv(o.passwordEnv); o.passwordEnv != "" && o.SASL.Password == "" {
		return fmt.Errorf("--sasl-password-env: the environment has no %s", o.passwordEnv)
	}
	switch {
	case !o.TLS.On && (o.TLS.CA != "" || o.TLS.Cert != "" || o.TLS.Key != ""):
		return errors.New("--tls-ca, --tls-cert and --tls-key need --tls")
	case (o.TLS.Cert == "") != (o.TLS.Key == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	case (o.SASL.User == "") != (o.SASL.Password == ""):
		return errors.New("--sasl-user and --sasl-password-env need each other")
	case o.SASL.User == "" && o.SASL.Mechanism != "":
		return errors.New("--sasl-mechanism needs --sasl-user")
	}
	return nil
}
