//go:build !long

package kafka_test

import "time"

// How long TestSoak takes; see soakEnv for another seed, more of them, or longer.
const (
	soakSeeds = 1
	soakTime  = 5 * time.Second
)

// webhookMessages is how many TestWebhooksOnceThroughAKill delivers at least, to each of its
// brokers: every payload three times.
const webhookMessages = 600

// fenceRounds is how often TestFenceThroughAKill kills one process and stops another.
const fenceRounds = 1

// batchMessages is how many messages the tests of SQL batches send, to each of two partitions: a
// member dies in the sixth batch of 13 or more.
const batchMessages = 100

// outageMessages is how many messages there are, half of them before, when a store goes down.
const outageMessages = 200

// everyFlavor is whether what does not depend on how a group rebalances is tried with each
// franz-go.
const everyFlavor = false
