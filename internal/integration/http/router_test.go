package http_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/sqladapter"
)

// orders makes a router that serves POST /shops/{shop}/orders behind the middleware. The query
// status selects the answer.
type orders func(m *httpadapter.Middleware, p *fixture) http.Handler

// book is the work of the routes.
func book(r *http.Request, p *fixture, shop, status string) (string, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	if err := p.ledger.book(r.Context(), shop); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s booked %s, %s", shop, body, status), nil
}

// withChi has the middleware inside of the router, for runners that do not run a handler again.
func withChi(m *httpadapter.Middleware, p *fixture) http.Handler {
	r := chi.NewRouter()
	r.Use(m.Handler)
	r.Mount("/shops", chiShops(p))
	return r
}

// aroundChi has it around the router, for runners that may run a handler again.
func aroundChi(m *httpadapter.Middleware, p *fixture) http.Handler {
	r := chi.NewRouter()
	r.Mount("/shops", chiShops(p))
	return m.Handler(r)
}

func chiShops(p *fixture) http.Handler {
	shops := chi.NewRouter()
	shops.Post("/{shop}/orders", func(w http.ResponseWriter, r *http.Request) {
		text, err := book(r, p, chi.URLParam(r, "shop"), r.URL.Query().Get("status"))
		if err != nil {
			panic(err)
		}
		status := http.StatusCreated
		if r.URL.Query().Get("status") == "422" {
			status = http.StatusUnprocessableEntity
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	return shops
}

func aroundGin(m *httpadapter.Middleware, p *fixture) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.POST("/shops/:shop/orders", func(c *gin.Context) {
		text, err := book(c.Request, p, c.Param("shop"), c.Query("status"))
		switch {
		case err != nil:
			panic(err)
		case c.Query("status") == "422":
			c.AbortWithStatusJSON(http.StatusUnprocessableEntity, gin.H{"error": text})
		default:
			c.String(http.StatusCreated, "%s", text)
		}
	})
	return m.Handler(e)
}

// aroundEcho has the middleware around the engine, which turns errors into answers.
func aroundEcho(m *httpadapter.Middleware, p *fixture) http.Handler {
	e := echo.New()
	e.POST("/shops/:shop/orders", func(c echo.Context) error {
		text, err := book(c.Request(), p, c.Param("shop"), c.QueryParam("status"))
		switch {
		case err != nil:
			return err
		case c.QueryParam("status") == "422":
			return echo.NewHTTPError(http.StatusUnprocessableEntity, text)
		}
		return c.String(http.StatusCreated, text)
	})
	return m.Handler(e)
}

func aroundEcho5(m *httpadapter.Middleware, p *fixture) http.Handler {
	e := echo5.New()
	e.POST("/shops/:shop/orders", func(c *echo5.Context) error {
		text, err := book(c.Request(), p, c.Param("shop"), c.QueryParam("status"))
		switch {
		case err != nil:
			return err
		case c.QueryParam("status") == "422":
			return echo5.NewHTTPError(http.StatusUnprocessableEntity, text)
		}
		return c.String(http.StatusCreated, text)
	})
	return m.Handler(e)
}

// TestRouters: the middleware with routers in use. Two shops with one key are two requests. Each is
// answered from its record, also with an error that the router turns into an answer. In a
// transaction such an error undoes its writes.
func TestRouters(t *testing.T) {
	claimed := memory
	for _, row := range []struct {
		name string
		over backend
		make orders
	}{
		{"chi, inside", claimed, withChi},
		{"chi, around", claimed, aroundChi},
		{"chi, around, in a transaction", backend{at: inTransaction(sqlite)}, aroundChi},
		{"gin", claimed, aroundGin},
		{"gin, in a transaction", backend{at: inTransaction(sqlite)}, aroundGin},
		{"echo", claimed, aroundEcho},
		{"echo, in a transaction", backend{at: inTransaction(sqlite)}, aroundEcho},
		{"echo 5", claimed, aroundEcho5},
		{"echo 5, in a transaction", backend{at: inTransaction(sqlite)}, aroundEcho5},
		{"echo, its method", claimed, aroundEchoMethod},
		{"fiber 2", claimed, aroundFiber2}, {"fiber 3", claimed, aroundFiber3},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := row.over.open(t, day, lease)
			m, err := httpadapter.New(p.run, account, httpadapter.Config{})
			require.NoError(t, err)
			s := &site{T: t, fixture: p, server: httptest.NewServer(row.make(m, p))}
			t.Cleanup(s.server.Close)
			for _, want := range []struct {
				shop   string
				status int
			}{{"one", 201}, {"two", 201}, {"three", 422}} {
				o := order(key(`"k"`)).to("POST",
					fmt.Sprintf("/shops/%s/orders?status=%d", want.shop, want.status))
				first := s.send(o)
				assert.Equal(t, want.status, first.status, "%s: %d %q", want.shop, first.status,
					first.body)
				assert.Empty(t, first.header.Get("Idempotent-Replayed"), "%s: %d %q", want.shop,
					first.status, first.body)
				s.wantReplay(first, s.send(o))
				s.wantProblem(s.send(o.with("other")), 422, "key-reused")
			}
			s.wantProblem(s.send(order().to("POST", "/shops/one/orders")), 400, "key-missing")
			assert.Equal(t, 404, s.send(order(key(`"k"`)).to("POST", "/nowhere")).status, "nowhere")
			effects := p.counts(t)
			undone := 1
			if p.Dialect == sqladapter.SQLite {
				undone = 0
			}
			assert.Equal(t, 1, effects["one"], "effects: %v", effects)
			assert.Equal(t, 1, effects["two"], "effects: %v", effects)
			assert.Equal(t, undone, effects["three"], "effects: %v", effects)
		})
	}
}
