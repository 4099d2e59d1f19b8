package redisadapter_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/redisadapter"
)

// TestBrokenConnectionIsNetwork: go-redis hands on a system call's error that is in no
// net.OpError. As "other" it counted for the breaker as an answer of the server.
func TestBrokenConnectionIsNetwork(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNABORTED} {
		err := fmt.Errorf("claim: %w", os.NewSyscallError("write", errno))
		assert.Equal(t, redisadapter.ClassNetwork, redisadapter.Classify(err), "%v", err)
	}
	assert.Equal(t, redisadapter.ClassOther, redisadapter.Classify(syscall.EINVAL))
}
