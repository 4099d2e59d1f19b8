package httpadapter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The files of both frameworks are recognized under every path that builds give them.
// internal/integration/http checks that the frameworks' handlers are in these files.
func TestFilesOfWrongMounts(t *testing.T) {
	files := map[string][]string{
		"echo.WrapMiddleware(m.Handler)": {
			"/home/me/go/pkg/mod/github.com/labstack/echo/v4@v4.16.0/echo.go",
			"github.com/labstack/echo/v5@v5.4.4/echo.go", // -trimpath
			"/src/app/vendor/github.com/labstack/echo/v4/echo.go",
			"C:/Users/me/go/pkg/mod/github.com/labstack/echo@v3.3.10+incompatible/echo.go",
		},
		"adaptor.HTTPMiddleware(m.Handler)": {
			"/home/me/go/pkg/mod/github.com/gofiber/fiber/v2@v2.52.15/middleware/adaptor/adaptor.go",
			"github.com/gofiber/fiber/v3@v3.1.0/middleware/adaptor/adaptor.go",
			"/src/app/vendor/github.com/gofiber/fiber/v3/middleware/adaptor/adaptor.go",
			"github.com/gofiber/adaptor/v2@v2.2.1/adaptor.go", // before it was fiber's
		},
	}
	others := []string{
		"/src/app/echo.go",
		"/src/labstack/echo/v4/echo.go",
		"github.com/labstack/echo/v4@v4.16.0/middleware/cors.go",
		"github.com/labstack/echo-contrib@v0.17.0/echo.go",
		"notgithub.com/labstack/echo/v4@v4.16.0/echo.go",
		"github.com/gofiber/fiber/v2@v2.52.15/app.go",
	}
	for _, wrong := range wrongMounts {
		for call, own := range files {
			for _, file := range own {
				assert.Equal(t, wrong.call == call, wrong.file.MatchString(file), "%s: %s",
					wrong.call, file)
			}
		}
		for _, file := range others {
			assert.False(t, wrong.file.MatchString(file), "%s: %s", wrong.call, file)
		}
	}
}
