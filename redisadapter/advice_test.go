package redisadapter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAdvices(t *testing.T) {
	for code, f := range advices {
		assert.NotEmpty(t, f.Why, code)
		assert.NotEmpty(t, f.Fix, code)
	}
}
