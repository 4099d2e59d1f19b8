//go:build !long

package kafka_test

import "time"

// How long TestSoak takes; see soakEnv for another seed, more of them, or longer.
const (
	soakSeeds = 1
	soakTime  = 8 * time.Second
)

// webhookMessages is how many TestWebhooksOnceThroughAKill delivers, to each of its brokers.
const webhookMessages = 2500

// fenceRounds is how often TestFenceThroughAKill kills one process and stops another.
const fenceRounds = 1
