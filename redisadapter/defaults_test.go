package redisadapter

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/redisadapter/internal/guard"
)

// TestDefaultsAreDocumented: users cannot see the constants, so the comments must be right.
func TestDefaultsAreDocumented(t *testing.T) {
	for _, d := range []struct {
		file, field string
		value       any
	}{
		{"options.go", "SuspectFor", guard.DefaultSuspectFor},
		{"options.go", "MaxInFlight", defaultMaxInFlight},
		{"options.go", "BreakerAfter", defaultBreakerAfter},
		{"list.go", "Limit", defaultListLimit},
		{"list.go", "Scan", defaultListScan},
		{"options.go", "Timeout", defaultWaitTimeout},
	} {
		source, err := os.ReadFile(d.file)
		require.NoError(t, err)
		found := regexp.MustCompile(`Default(?:\n\t//)? ([0-9][\w ]*)\.\n\t` + d.field + ` `).
			FindStringSubmatch(string(source))
		require.NotNil(t, found, "%s does not say the default of %s", d.file, d.field)
		assert.Equal(t, fmt.Sprint(d.value), strings.ReplaceAll(found[1], " ", ""), d.field)
	}
	source, err := os.ReadFile("watch.go")
	require.NoError(t, err)
	assert.Contains(t, strings.ReplaceAll(string(source), " ", ""),
		"zeromeans"+fmt.Sprint(defaultWatch), "Watch")
}
