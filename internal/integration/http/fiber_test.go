package http_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	fiber2 "github.com/gofiber/fiber/v2"
	adaptor2 "github.com/gofiber/fiber/v2/middleware/adaptor"
	fiber3 "github.com/gofiber/fiber/v3"
	adaptor3 "github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/onceward/onceward/httpadapter"
)

// fiber's routes do not get the values of the request's context, so they have no row in a
// transaction.

func aroundFiber2(m *httpadapter.Middleware, p *fixture) http.Handler {
	app := fiber2.New(fiber2.Config{DisableStartupMessage: true})
	app.Post("/shops/:shop/orders", func(c *fiber2.Ctx) error {
		shop, status := strings.Clone(c.Params("shop")), c.QueryInt("status")
		if err := p.ledger.book(context.Background(), shop); err != nil {
			return err
		}
		text := fmt.Sprintf("%s booked %s, %d", shop, c.Body(), status)
		if status == http.StatusUnprocessableEntity {
			return fiber2.NewError(status, text)
		}
		return c.Status(http.StatusCreated).SendString(text)
	})
	return m.Handler(adaptor2.FiberApp(app))
}

func aroundFiber3(m *httpadapter.Middleware, p *fixture) http.Handler {
	app := fiber3.New()
	app.Post("/shops/:shop/orders", func(c fiber3.Ctx) error {
		shop, status := strings.Clone(c.Params("shop")), fiber3.Query[int](c, "status")
		if err := p.ledger.book(context.Background(), shop); err != nil {
			return err
		}
		text := fmt.Sprintf("%s booked %s, %d", shop, c.Body(), status)
		if status == http.StatusUnprocessableEntity {
			return fiber3.NewError(status, text)
		}
		return c.Status(http.StatusCreated).SendString(text)
	})
	return m.Handler(adaptor3.FiberApp(app))
}
