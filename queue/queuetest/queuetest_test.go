package queuetest

import (
	"testing"
	"time"
)

func TestMemoryConforms(t *testing.T) {
	Run(t, func(testing.TB) Queue { return NewBroker(time.Second).Queue() })
}
