package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/console"
)

// Bounds on what one client may use.
const (
	headerTime   = 10 * time.Second
	requestTime  = 30 * time.Second
	idleTime     = 2 * time.Minute
	headerBytes  = 32 << 10
	shutdownTime = 5 * time.Second
)

// run serves the console until ctx has ended, and returns its cause.
func (o *Options) run(ctx context.Context, s *cli.Streams) error {
	store, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.TakeWindow(&o.Window); err != nil {
		return err
	}
	options := console.Options{
		Store: store.Store, Name: "Onceward: " + store.Name, Namespace: o.Namespace,
		Window: o.Window, Hold: o.Hold, AllowChanges: o.Changes,
		Logger:    slog.New(slog.NewTextHandler(s.Err, nil)),
		ShowError: func(err error) string { return o.Server.Hide(err.Error()) },
	}
	if o.Changes {
		options.Authorize = func(*http.Request) (string, error) { return cli.Operator(), nil }
	}
	pages, err := console.New(options)
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return serve(ctx, l, pages, s)
}

// serve prints the address of the pages, and serves them until ctx has ended.
func serve(ctx context.Context, l net.Listener, pages http.Handler, s *cli.Streams) error {
	before := ""
	gated := newGate(pages, func(token string) {
		fmt.Fprintf(s.Out, "%shttp://%s/?token=%s\n", before, l.Addr(), token)
		before = "for another browser: "
	})
	server := &http.Server{
		Handler: gated, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime,
		WriteTimeout: requestTime, IdleTimeout: idleTime,
		MaxHeaderBytes: headerBytes, ErrorLog: log.New(io.Discard, "", 0),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close() // clients that still read had enough time
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return context.Cause(ctx)
}
