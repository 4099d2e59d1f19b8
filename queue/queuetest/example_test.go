package queuetest_test

import (
	"testing"
	"time"

	"github.com/onceward/onceward/queue/queuetest"
)

// The test of an adapter: open makes a new queue at the real broker for each row.
func ExampleRun() {
	test := func(t *testing.T) {
		queuetest.Run(t, func(testing.TB) queuetest.Queue {
			return queuetest.NewBroker(time.Second).Queue()
		})
	}
	_ = test
}
