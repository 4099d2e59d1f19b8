package sqlpreflight

import (
	"testing"

	"github.com/onceward/onceward/internal/advice/advicetest"
)

func TestFindingsAreDocumented(t *testing.T) {
	advicetest.Documented(t, advices, "../../docs/reference/findings.md", "## Databases")
}
