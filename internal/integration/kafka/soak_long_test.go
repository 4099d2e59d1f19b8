//go:build long

package kafka_test

import "time"

// How long TestSoak takes; see soakEnv for another seed, more of them, or longer.
const (
	soakSeeds = 20
	soakTime  = 30 * time.Second
)

// webhookMessages is how many TestWebhooksOnceThroughAKill delivers, to each of its brokers.
const webhookMessages = 5000

// fenceRounds is how often TestFenceThroughAKill kills one process and stops another.
const fenceRounds = 12

// batchMessages is how many messages the tests of SQL batches send, to each of two partitions.
const batchMessages = 200

// outageMessages is how many messages there are, half of them before, when a store goes down.
const outageMessages = 400

// everyFlavor is whether what does not depend on how a group rebalances is tried with each
// franz-go.
const everyFlavor = true
