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

// outageMessages is how many messages are sent when a store goes down, half of them before that.
const outageMessages = 200

// everyFlavor says whether the scenarios in unmoved run on every franz-go flavor.
const everyFlavor = false
