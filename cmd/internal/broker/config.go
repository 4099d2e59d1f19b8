package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceward/onceward/cmd/internal/server"
)

// Open connects a client that creates no topic. The caller closes it.
func (o *Options) Open(ctx context.Context, name string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append(opts, kgo.SeedBrokers(o.Brokers...), kgo.ClientID(name),
		kgo.DialTimeout(10*time.Second))
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
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("--brokers: %w", err)
	}
	// kgo waits for a broker that accepts the connection and hangs, even after ctx has ended.
	defer context.AfterFunc(ctx, client.Close)()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err() // kgo only says that the client is closed
		}
		return nil, fmt.Errorf("--brokers: %w", server.Unanswered(err, o.Brokers...))
	}
	return client, nil
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

// Poll waits for messages. It returns none if nothing comes for the time quiet.
func Poll(ctx context.Context, client *kgo.Client, quiet time.Duration) (kgo.Fetches, error) {
	waiting, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	fetches := client.PollFetches(waiting)
	switch err := fetches.Err0(); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil
	case err != nil:
		return nil, err
	}
	for _, e := range fetches.Errors() {
		return nil, fmt.Errorf("%s/%d: %w", e.Topic, e.Partition, e.Err)
	}
	return fetches, nil
}
