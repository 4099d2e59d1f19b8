package httpbench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
)

// receipt is what a charge is answered with.
const receipt = `{"id":"ch_3PqXk2eZvKYlo2C1","object":"charge","account":"acct-4711","amount":4200,"currency":"eur","status":"succeeded"}`

// timeout of one request; nothing that is measured takes as long.
const timeout = 30 * time.Second

// listen opens a port of loopback for the party.
func (p *party) listen(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		p.addr = l.Addr().String()
	}
	return l, err
}

// nethttp serves the handler with its effect, in wrap, with net/http.
func (p *party) nethttp(ctx context.Context, effect func(*http.Request) error,
	wrap func(http.Handler) http.Handler) error {
	l, err := p.listen(ctx)
	if err != nil {
		return err
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.runs.Add(1)
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
	p.Defer(func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	})
	return nil
}

// fiber serves the same with fiber, behind the middleware; nil: none.
func (p *party) fiber(ctx context.Context, middleware fiber.Handler) error {
	l, err := p.listen(ctx)
	if err != nil {
		return err
	}
	app := fiber.New()
	if middleware != nil {
		app.Use(middleware)
	}
	app.Post("/charges", func(c fiber.Ctx) error {
		p.runs.Add(1)
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		return c.Status(http.StatusCreated).SendString(receipt)
	})
	done := make(chan error, 1)
	go func() { done <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	p.Defer(func() error { return errors.Join(app.ShutdownWithTimeout(5*time.Second), <-done) })
	return nil
}
