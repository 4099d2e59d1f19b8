package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
)

// readyTime is how long Redis may take to answer /readyz.
const readyTime = time.Second

// serve listens, prints the addresses, and drains when ctx ends.
func (o *Options) serve(ctx context.Context, s *site, client redis.UniversalClient,
	certs *certificates, out io.Writer) error {
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = l.Close() }()
	la, err := listening.Listen(ctx, "tcp", o.Admin)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	var draining atomic.Bool
	admin := &http.Server{Handler: o.admin(s, client, &draining), ReadHeaderTimeout: headerTime}
	defer func() { _ = admin.Close() }()
	server, served, scheme := o.clients(s, certs), make(chan error, 2), "http"
	go func() { served <- admin.Serve(la) }()
	if certs != nil {
		defer certs.watch(s.log)()
		scheme = "https"
		go func() { served <- server.ServeTLS(l, "", "") }()
	} else {
		go func() { served <- server.Serve(l) }()
	}
	fmt.Fprintf(out, "clients: %s://%s   operators: http://%s\n", scheme, l.Addr(), la.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	draining.Store(true)
	return o.drain(context.WithoutCancel(ctx), s, server)
}

// drain lets running requests end, including those whose client has gone.
func (o *Options) drain(ctx context.Context, s *site, server *http.Server) error {
	s.log.Info("draining", "delay", o.DrainDelay, "grace", o.Grace)
	delay := time.NewTimer(o.DrainDelay)
	defer delay.Stop()
	<-delay.C
	ctx, cancel := context.WithTimeout(ctx, o.Grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if err = errors.Join(err, s.close(ctx)); err == nil {
		return nil
	}
	_ = server.Close()
	return errors.Join(errCut, err)
}

// admin serves operators. Its pages show no keys and no clients.
func (o *Options) admin(s *site, client redis.UniversalClient, draining *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		switch {
		case draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case client.Ping(ctx).Err() != nil:
			http.Error(w, "Redis does not answer", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ready")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// certificates holds the certificate for TLS; its files may change.
type certificates struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
}

func (c *certificates) load() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	c.now.Store(&pair)
	return nil
}

// watch reads the files again at each SIGHUP. If they are invalid, it keeps the old certificate.
func (c *certificates) watch(log *slog.Logger) (stop func()) {
	hup, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range hup {
			if err := c.load(); err != nil {
				log.Error("the certificates stay as they are", "error", err)
			} else {
				log.Info("the certificates were read again")
			}
		}
	}()
	return func() {
		signal.Stop(hup)
		close(hup)
		<-ended
	}
}
