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

// outageMessages is how many messages are sent when a store goes down, half of them before that.
const outageMessages = 400

// everyFlavor says whether the scenarios in unmoved run on every franz-go flavor.
const everyFlavor = true
