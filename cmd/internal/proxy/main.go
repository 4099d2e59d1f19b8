package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

// openTime bounds how long Redis may take to answer when the proxy starts.
const openTime = 20 * time.Second

// errCut reports that requests were still running at the end of --grace.
var errCut = errors.New("requests were cut off at the end of --grace")

// run serves until ctx ends, and returns nil if all requests have ended. It writes the addresses to
// the output, and the log to standard error.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	if o.Check {
		_, err := fmt.Fprintln(s.Out, "the settings are right")
		return err
	}
	log := slog.New(slog.NewTextHandler(s.Err, nil))
	var certs *certificates // nil without TLS
	if o.Cert != "" {
		certs = &certificates{cert: o.Cert, key: o.Key}
		if err := certs.load(); err != nil {
			return err
		}
	}
	client, err := o.Server.OpenRedis()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	store, err := o.open(ctx, client, log)
	if err != nil {
		return err
	}
	site, err := o.build(store, log)
	if err != nil {
		return err
	}
	err = o.serve(ctx, site, client, certs, s.Out)
	if errors.Is(err, errCut) {
		fmt.Fprintf(s.Err, "onceward proxy: %v\n", err)
		return cli.Fail(cli.No, nil)
	}
	return err
}

// open connects to Redis.
func (o *Options) open(ctx context.Context, client redis.UniversalClient,
	log *slog.Logger) (*redisadapter.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	defer server.CutOff(ctx, client)()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: o.Prefix,
		OnFinding: func(f preflight.Finding) { log.Warn("redis", "finding", f.String()) }})
	switch {
	case err != nil && server.Clustered(ctx, client):
		return nil, server.ErrClustered
	case err != nil:
		return nil, o.Server.Unanswered(fmt.Errorf("--redis: %w", err))
	}
	return store, nil
}

// clients returns the server that clients connect to. It has no WriteTimeout: streams pass through
// it.
func (o *Options) clients(s *site, certs *certificates) *http.Server {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: min(headerTime, o.ReadTimeout), ReadTimeout: o.ReadTimeout,
		IdleTimeout: keepTime, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if certs != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return certs.now.Load(), nil
			}}
	}
	return server
}

// Bounds on what one client may use.
const (
	headerTime  = 10 * time.Second
	keepTime    = 2 * time.Minute
	headerBytes = 64 << 10
)
