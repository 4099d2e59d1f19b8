package kafkadriver

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Retention reads from a topic's configuration how long it keeps messages; negative: without limit.
// Only a policy that deletes has a retention.
func Retention(values map[string]string) (time.Duration, error) {
	policy, is := values["cleanup.policy"]
	if !is {
		policy = "delete"
	}
	ms, err := strconv.ParseInt(values["retention.ms"], 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("retention.ms is %q: %w", values["retention.ms"], err)
	case ms < 0, ms > math.MaxInt64/int64(time.Millisecond), !strings.Contains(policy, "delete"):
		return -1, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}
