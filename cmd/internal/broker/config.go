package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Config is that of connections which make no topic.
func (o *Options) Config(client string) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = client
	c.Version = sarama.V2_8_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 10*time.Second, 10*time.Second,
		10*time.Second
	// a topic that is gone, or misspelt, must not come to be
	c.Metadata.AllowAutoTopicCreation = false
	if o.TLS.On {
		var err error
		if c.Net.TLS.Config, err = tlsConfig(o.TLS); err != nil {
			return nil, err
		}
		c.Net.TLS.Enable = true
	}
	if o.SASL.User != "" {
		Authenticate(c, o.SASL)
	}
	return c, nil
}

// Franz is the same for franz-go.
func (o *Options) Franz(client string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.ClientID(client),
		kgo.DialTimeout(10 * time.Second)}
	if o.TLS.On {
		c, err := tlsConfig(o.TLS)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	if o.SASL.User != "" {
		opts = append(opts, kgo.SASL(o.SASL.mechanism()))
	}
	return opts, nil
}

func (s SASL) mechanism() sasl.Mechanism {
	auth := scram.Auth{User: s.User, Pass: s.Password}
	switch s.Mechanism {
	case "plain":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case "scram-sha-256":
		return auth.AsSha256Mechanism()
	}
	return auth.AsSha512Mechanism()
}

func tlsConfig(t TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s has no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Authenticate sets in c how to say who we are.
func Authenticate(c *sarama.Config, s SASL) {
	c.Net.SASL.Enable = true
	c.Net.SASL.User, c.Net.SASL.Password = s.User, s.Password
	switch s.Mechanism {
	case "plain":
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		return
	case "scram-sha-256":
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
	default:
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
	}
	mechanism := s.mechanism()
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		return &scramClient{mechanism: mechanism}
	}
}

// scramClient is a sarama.SCRAMClient: sarama has the messages of SASL, and leaves what
// stands in them to its users.
type scramClient struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	first     []byte // until it has been sent
	done      bool
}

// Begin implements sarama.SCRAMClient; the mechanism has the credentials.
func (c *scramClient) Begin(string, string, string) (err error) {
	c.session, c.first, err = c.mechanism.Authenticate(context.Background(), "")
	return err
}

// Step implements sarama.SCRAMClient.
func (c *scramClient) Step(challenge string) (response string, err error) {
	if c.first != nil {
		response, c.first = string(c.first), nil
		return response, nil
	}
	var out []byte
	c.done, out, err = c.session.Challenge([]byte(challenge))
	return string(out), err
}

// Done implements sarama.SCRAMClient.
func (c *scramClient) Done() bool { return c.done }
