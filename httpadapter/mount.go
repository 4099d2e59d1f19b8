package httpadapter

import (
	"net/http"
	"path"
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"github.com/onceward/onceward/httpadapter/internal/problem"
)

var mountedWrong = problem.Problem{Name: "mounted-wrong", Status: 500,
	Title: "The service has mounted this middleware in a way that does not work.", Final: true}

// wrongMount is a framework's adapter that passes a handler to the middleware whose answer is not
// the final answer of the request.
type wrongMount struct {
	call string         // as users write it
	file *regexp.Regexp // the source file of the handler that it passes
	// a part of the handler function's name that other functions of the file do not have
	inner string
	why   string
	right string // the line to write instead
}

// wrongMounts are the adapters of echo and fiber. The one of fiber runs the route after the
// middleware has returned; the one of echo turns the route's error into an answer after that. The
// patterns match the end of the file's path, because that is the same for every version of a
// module, in the cache or vendored, and with -trimpath.
var wrongMounts = []*wrongMount{
	{
		call:  "echo.WrapMiddleware(m.Handler)",
		file:  regexp.MustCompile(`(^|/)github\.com/labstack/echo(/v\d+)?(@[^/]+)?/echo\.go$`),
		inner: "WrapMiddleware.",
		why:   "echo answers for a handler's error after the middleware has recorded an answer",
		right: "server.Handler = m.Handler(e), with e the *echo.Echo",
	},
	{
		call: "adaptor.HTTPMiddleware(m.Handler)",
		file: regexp.MustCompile(
			`(^|/)github\.com/gofiber/(fiber(/v\d+)?(@[^/]+)?/middleware/)?adaptor(/v\d+)?(@[^/]+)?/adaptor\.go$`),
		inner: "HTTPMiddleware.",
		why:   "fiber runs the route after the middleware has recorded an answer",
		right: "server.Handler = m.Handler(adaptor.FiberApp(app)), with app the *fiber.App",
	},
}

// mountOf returns the wrong mount that has passed next, or nil. It recognizes the source file of
// next's function, which is the same even if the function was inlined into its caller.
func mountOf(next http.Handler) *wrongMount {
	v := reflect.ValueOf(next)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil
	}
	f := runtime.FuncForPC(v.Pointer())
	if f == nil {
		return nil
	}
	file, _ := f.FileLine(f.Entry())
	file = path.Clean(strings.ReplaceAll(file, `\`, "/"))
	for _, wrong := range wrongMounts {
		if wrong.file.MatchString(file) && strings.Contains(f.Name(), wrong.inner) {
			return wrong
		}
	}
	return nil
}

// refusal answers every request of a wrong mount, with a key or without one, so that the
// first request shows it and not the first failure.
func (m *Middleware) refusal(wrong *wrongMount) http.Handler {
	detail := wrong.call + " does not work: " + wrong.why + ". Write " + wrong.right +
		". See docs/guides/frameworks.md."
	// such adapters call Handler for each request
	if _, logged := m.refused.LoadOrStore(wrong, true); !logged {
		m.cfg.Logger.Error("httpadapter: every request is refused: " + detail)
	}
	p := mountedWrong
	p.Detail = detail
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.writeProblem(w, r, p)
	})
}
