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
