package wire

import (
	"testing"

	"github.com/onceward/onceward/internal/advice/advicetest"
)

func TestFindingsAreDocumented(t *testing.T) {
	advicetest.Documented(t, Advices, "../../../docs/reference/findings.md", "## Redis")
}
