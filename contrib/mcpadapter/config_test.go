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
	named, all := mcpadapter.Config{Name: "n"}, mcpadapter.Unscoped
	for name, row := range map[string]struct {
		run   httpadapter.Runner
		whose mcpadapter.Principal
		cfg   mcpadapter.Config
		field string
	}{
		"no Runner":    {nil, all, named, "Runner"},
		"no results":   {runner(true), all, named, "Runner"},
		"no Principal": {runner(false), nil, named, "Principal"},
		"no Name":      {runner(false), all, mcpadapter.Config{}, "Config.Name"},
		"negative Timeout": {runner(false), all, mcpadapter.Config{Name: "n", Timeout: -1},
			"Config.Timeout"},
		"all is well": {runner(false), all, named, ""},
	} {
		_, err := mcpadapter.New(row.run, row.whose, row.cfg)
		var input *dedup.InputError
		if row.field == "" {
			assert.NoError(t, err, name)
		} else if assert.ErrorAs(t, err, &input, name) {
			assert.Equal(t, "mcpadapter."+row.field, input.Field, name)
		}
	}
}
