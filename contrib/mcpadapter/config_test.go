package mcpadapter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// New names what is wrong.
func TestConfigIsChecked(t *testing.T) {
	runner := func(seenOnly bool) httpadapter.Runner {
		d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "mcp", Window: time.Hour,
			LeaseTTL: time.Second, SeenOnly: seenOnly})
		require.NoError(t, err)
		run, err := httpadapter.Claimed(d)
		require.NoError(t, err)
		return run
	}
	named := mcpadapter.Config{Name: "n"}
	for field, err := range map[string]error{
		"Runner":         second(mcpadapter.New(nil, mcpadapter.Unscoped, named)),
		"Runner keeps":   second(mcpadapter.New(runner(true), mcpadapter.Unscoped, named)),
		"Principal":      second(mcpadapter.New(runner(false), nil, named)),
		"Config.Name":    second(mcpadapter.New(runner(false), mcpadapter.Unscoped, mcpadapter.Config{})),
		"Config.Timeout": second(mcpadapter.New(runner(false), mcpadapter.Unscoped, mcpadapter.Config{Name: "n", Timeout: -1})),
	} {
		var input *dedup.InputError
		if assert.ErrorAs(t, err, &input, field) {
			assert.ErrorContains(t, err, "mcpadapter."+field[:min(6, len(field))])
		}
	}
	assert.NoError(t, second(mcpadapter.New(runner(false), mcpadapter.Unscoped, named)))
}

func second[T any](_ T, err error) error { return err }
