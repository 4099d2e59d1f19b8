package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rivals are the modules that we compare ourselves with. rivalry are our modules that do so, and
// one that adds to a rival.
var (
	rivals = []string{"github.com/ThreeDotsLabs/watermill", "github.com/bsm/redislock",
		"github.com/go-redsync/redsync/v4", "github.com/gofiber/fiber/v3"}
	rivalry = []string{"bench", "internal/integration/others", "contrib/watermilladapter"}
	// fiber is also a framework that our middleware is mounted in, rightly and wrongly.
	mounted = map[string]string{"internal/integration": "github.com/gofiber/fiber/v3"}
)

// TestRivalsStayOut allows rivals only in the go.mod files of rivalry and mounted.
func TestRivalsStayOut(t *testing.T) {
	met := 0
	for path, dir := range modules(t) {
		name, _ := rel(path)
		required := string(run(t, "go", "-C", dir, "mod", "edit", "-print"))
		for _, rival := range rivals {
			switch found := strings.Contains(required, rival+" v"); {
			case found && !slices.Contains(rivalry, name) && mounted[name] != rival:
				t.Errorf("the go.mod of %s requires %s", path, rival)
			case found:
				met++
			}
		}
	}
	require.Positive(t, met, "nobody requires any: this test looked in the wrong place")
}
