package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
)

// receipt is what a charge is answered with.
const receipt = `{"id":"ch_3PqXk2eZvKYlo2C1","object":"charge","account":"acct-4711","amount":4200,"currency":"eur","status":"succeeded"}`

// site is a server on loopback.
type site struct {
	addr string
	runs *atomic.Int64 // of the handler
	stop func() error
}

// listen opens a port of loopback.
func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

// nethttp serves the handler that charge makes, in wrap, with net/http.
func nethttp(ctx context.Context, effect func(*http.Request) error, wrap func(http.Handler) http.Handler) (*site, error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	s := &site{addr: l.Addr().String(), runs: new(atomic.Int64)}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if effect != nil {
			if err := effect(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	if wrap != nil {
		h = wrap(h)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: timeout}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	s.stop = func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	return s, nil
}

// fiberApp serves the same with fiber, behind the middleware; nil: none.
func fiberApp(ctx context.Context, middleware fiber.Handler) (*site, error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	s := &site{addr: l.Addr().String(), runs: new(atomic.Int64)}
	app := fiber.New()
	if middleware != nil {
		app.Use(middleware)
	}
	app.Post("/charges", func(c fiber.Ctx) error {
		s.runs.Add(1)
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		return c.Status(http.StatusCreated).SendString(receipt)
	})
	done := make(chan error, 1)
	go func() { done <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	s.stop = func() error {
		return errors.Join(app.ShutdownWithTimeout(5*time.Second), <-done)
	}
	return s, nil
}
