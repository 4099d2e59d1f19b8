package http_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
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

// engines answer 201 on every route that TestRuleForEachRoute asks for.
var engines = map[string]func() http.Handler{
	"chi": func() http.Handler {
		r := chi.NewRouter()
		for _, pattern := range []string{"/payments", "/notes/{id}"} {
			r.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
			})
		}
		return r
	},
	"gin": func() http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		done := func(c *gin.Context) { c.String(http.StatusCreated, "") }
		e.Any("/payments", done)
		e.Any("/notes/:id", done)
		return e
	},
	"echo": func() http.Handler {
		e := echo.New()
		done := func(c echo.Context) error { return c.NoContent(http.StatusCreated) }
		e.Any("/payments", done)
		e.Any("/notes/:id", done)
		return e
	},
	"echo 5": func() http.Handler {
		e := echo5.New()
		done := func(c *echo5.Context) error { return c.NoContent(http.StatusCreated) }
		e.Any("/payments", done)
		e.Any("/notes/:id", done)
		return e
	},
	"fiber 2": func() http.Handler {
		app := fiber2.New(fiber2.Config{DisableStartupMessage: true})
		done := func(c *fiber2.Ctx) error { return c.Status(http.StatusCreated).SendString("") }
		app.All("/payments", done)
		app.All("/notes/:id", done)
		return adaptor2.FiberApp(app)
	},
	"fiber 3": func() http.Handler {
		app := fiber3.New()
		done := func(c fiber3.Ctx) error { return c.Status(http.StatusCreated).SendString("") }
		app.All("/payments", done)
		app.All("/notes/:id", done)
		return adaptor3.FiberApp(app)
	},
}

// A mux of net/http around an engine gives each of its routes a middleware of its own: other
// methods, no key needed, another window. Both share one retry budget of an account.
func TestRuleForEachRoute(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			budget, err := httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Most: 3,
				Ratio: 1e-6, PerSecond: 1e-6})
			require.NoError(t, err)
			rule := func(window time.Duration, cfg httpadapter.Config) *httpadapter.Middleware {
				cfg.RetryBudget = budget
				m, err := httpadapter.New(memory.open(t, window, lease).run, account, cfg)
				require.NoError(t, err)
				return m
			}
			payments := rule(day, httpadapter.Config{})
			notes := rule(time.Hour, httpadapter.Config{Optional: true,
				Methods: []string{http.MethodPut}})
			mux, e := http.NewServeMux(), engine()
			mux.Handle("POST /payments", payments.Handler(e))
			mux.Handle("PUT /notes/{id}", notes.Handler(e))
			mux.Handle("/", e)
			s := serving(t, nil, mux)

			for _, row := range []struct {
				method, target, key      string
				status                   int
				window, replayed, reason string
			}{
				{"POST", "/payments", "", 400, "", "", "key-missing"},
				{"POST", "/payments", "k", 201, "86400", "", ""},
				{"POST", "/payments", "k", 201, "8", "true", ""},
				{"PUT", "/notes/1", "", 201, "", "", ""},
				{"PUT", "/notes/1", "k", 201, "3600", "", ""},
				{"PUT", "/notes/2", "k", 201, "3600", "", ""},
				{"PUT", "/notes/2", "k", 201, "3", "true", ""},
				{"PUT", "/payments", "k", 201, "", "", ""}, // a route without a rule
				{"POST", "/payments", "k", 201, "8", "true", ""},
				{"PUT", "/notes/1", "k", 429, "3600", "", "too-many-retries"},
			} {
				r := order().to(row.method, row.target)
				if row.key != "" {
					r = order(key(row.key)).to(row.method, row.target)
				}
				a := s.send(r)
				assert.Equal(t, row.status, a.status, "%v: %s", row, a.body)
				assert.Equal(t, row.replayed, a.header.Get("Idempotent-Replayed"), row)
				got := a.header.Get("Idempotency-Window")
				if row.replayed == "true" { // the window that is left
					assert.Regexp(t, "^"+row.window, got, row)
				} else {
					assert.Equal(t, row.window, got, row)
				}
				assert.Contains(t, a.body, row.reason)
			}
		})
	}
}
