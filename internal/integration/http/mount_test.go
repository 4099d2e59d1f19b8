package http_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	fiber2 "github.com/gofiber/fiber/v2"
	adaptor2 "github.com/gofiber/fiber/v2/middleware/adaptor"
	fiber3 "github.com/gofiber/fiber/v3"
	adaptor3 "github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

// failing is the handler of the routes of wrongly mounted routers: it has its effect and fails.
func failing(ctx context.Context, p *fixture) error {
	return errors.Join(p.ledger.book(ctx, "effect"), errors.New("database is down"))
}

// mount makes a router that uses the middleware of net/http, and fails in its routes.
type mount func(use func(http.Handler) http.Handler, p *fixture) http.Handler

func insideEcho(use func(http.Handler) http.Handler, p *fixture) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(use))
	e.Any("/orders", func(c echo.Context) error { return failing(c.Request().Context(), p) })
	return e
}

func insideEcho5(use func(http.Handler) http.Handler, p *fixture) http.Handler {
	e := echo5.New()
	e.Use(echo5.WrapMiddleware(use))
	e.Any("/orders", func(c *echo5.Context) error { return failing(c.Request().Context(), p) })
	return e
}

func insideFiber2(use func(http.Handler) http.Handler, p *fixture) http.Handler {
	app := fiber2.New(fiber2.Config{DisableStartupMessage: true})
	app.Use(adaptor2.HTTPMiddleware(use))
	app.All("/orders", func(*fiber2.Ctx) error { return failing(context.Background(), p) })
	return adaptor2.FiberApp(app)
}

func insideFiber3(use func(http.Handler) http.Handler, p *fixture) http.Handler {
	app := fiber3.New()
	app.Use(adaptor3.HTTPMiddleware(use))
	app.All("/orders", func(fiber3.Ctx) error { return failing(context.Background(), p) })
	return adaptor3.FiberApp(app)
}

// aroundEchoMethod hands over a function that is written in the same file as echo's wrong mount.
func aroundEchoMethod(m *httpadapter.Middleware, p *fixture) http.Handler {
	e := echo.New()
	e.POST("/shops/:shop/orders", func(c echo.Context) error {
		text, err := book(c.Request(), p, c.Param("shop"), c.QueryParam("status"))
		if err == nil && c.QueryParam("status") == "422" {
			return echo.NewHTTPError(http.StatusUnprocessableEntity, text)
		}
		return errors.Join(err, c.String(http.StatusCreated, text))
	})
	return m.Handler(http.HandlerFunc(e.ServeHTTP))
}

var wrongMounts = []struct {
	name  string
	mount mount
	right string
}{
	{"echo", insideEcho, "server.Handler = m.Handler(e)"},
	{"echo 5", insideEcho5, "server.Handler = m.Handler(e)"},
	{"fiber 2", insideFiber2, "server.Handler = m.Handler(adaptor.FiberApp(app))"},
	{"fiber 3", insideFiber3, "server.Handler = m.Handler(adaptor.FiberApp(app))"},
}

// TestWrongMountsAreRefused: users of echo and fiber mount middleware of net/http in a way in which
// a failed request was recorded and replayed as an empty 200. Now any first request shows the
// mistake, and is not recorded.
func TestWrongMountsAreRefused(t *testing.T) {
	for _, row := range wrongMounts {
		t.Run(row.name, func(t *testing.T) {
			p := memory.open(t, day, lease)
			var log bytes.Buffer
			m, err := httpadapter.New(p.run, account,
				httpadapter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			s := serving(t, p, row.mount(m.Handler, p))
			for _, r := range []request{order(key("k")), order(key("k")), order(),
				order().to("GET", "/orders")} {
				a := s.send(r)
				s.wantProblem(a, 500, "mounted-wrong")
				assert.Contains(t, a.body, row.right)
			}
			assert.Empty(t, p.counts(t), "a route ran")
			assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), "logged %s", &log)
			assert.Contains(t, log.String(), row.right)

			right := serving(t, p, m.Handler(http.HandlerFunc(s.shop)))
			assert.Equal(t, 201, right.send(order(key("k"))).status,
				"something of the refused request is on record")
		})
	}
}

// TestFailureBehindAHiddenMount: if another middleware is in between, the mount cannot be
// recognized. The failed request is still not a success, and its effect happens once.
func TestFailureBehindAHiddenMount(t *testing.T) {
	for _, row := range wrongMounts {
		t.Run(row.name, func(t *testing.T) {
			p := memory.open(t, day, lease)
			m, err := httpadapter.New(p.run, account, httpadapter.Config{})
			require.NoError(t, err)
			hidden := func(next http.Handler) http.Handler {
				return m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					next.ServeHTTP(w, r)
				}))
			}
			s := serving(t, p, row.mount(hidden, p))
			assert.Equal(t, 500, s.send(order(key("k"))).status)
			for range 2 {
				s.wantProblem(s.send(order(key("k"))), 409, "uncertain")
			}
			assert.Equal(t, map[string]int{"effect": 1}, p.counts(t))
		})
	}
}

// TestFailureBehindAHiddenMountIsUndone: in a transaction nothing of a failure stays, and its key
// is free. fiber's routes cannot be in one.
func TestFailureBehindAHiddenMountIsUndone(t *testing.T) {
	for _, row := range wrongMounts[:2] {
		t.Run(row.name, func(t *testing.T) {
			p := backend{at: inTransaction(sqlite)}.open(t, day, lease)
			m, err := httpadapter.New(p.run, account, httpadapter.Config{})
			require.NoError(t, err)
			hidden := func(next http.Handler) http.Handler {
				return m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					next.ServeHTTP(w, r)
				}))
			}
			s := serving(t, p, row.mount(hidden, p))
			for range 2 {
				s.wantProblem(s.send(order(key("k"))), 500, "no-answer")
			}
			assert.Empty(t, p.counts(t), "half of a transaction was committed")
		})
	}
}

// TestSilenceOfRouters shows how each router answers for a route that writes nothing: gin answers
// 200, as fiber does, and the others leave it to net/http.
func TestSilenceOfRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, row := range map[string]struct {
		engine func() http.Handler
		status int
	}{
		"gin": {func() http.Handler {
			e := gin.New()
			e.POST("/orders", func(*gin.Context) {})
			return e
		}, 200},
		"fiber 3": {func() http.Handler {
			app := fiber3.New()
			app.Post("/orders", func(fiber3.Ctx) error { return nil })
			return adaptor3.FiberApp(app)
		}, 200},
		"echo": {func() http.Handler {
			e := echo.New()
			e.POST("/orders", func(echo.Context) error { return nil })
			return e
		}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			p := memory.open(t, day, lease)
			m, err := httpadapter.New(p.run, account, httpadapter.Config{})
			require.NoError(t, err)
			assert.Equal(t, row.status,
				serving(t, p, m.Handler(row.engine())).send(order(key("k"))).status)
		})
	}
}

// serving is a site with a handler of its own.
func serving(t *testing.T, p *fixture, h http.Handler) *site {
	s := &site{T: t, fixture: p, server: httptest.NewServer(h)}
	t.Cleanup(s.server.Close)
	return s
}
