package kafkaadapter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// WindowError says that messages of a topic may be redelivered after their records are forgotten.
type WindowError struct {
	// Topic of the messages.
	Topic string
	// Retention is how long the topic keeps them, if that is longer than the window. Negative:
	// without limit. 0: it is not longer.
	Retention time.Duration
	// Lag is the age of the oldest message that the group has not read, if that is longer than the
	// window. A duplicate of it may have been recorded, and forgotten, since. 0: it is not longer.
	Lag time.Duration
	// Window is how long a record is kept.
	Window time.Duration
}

// Error implements error.
func (e *WindowError) Error() string {
	var reasons []string
	switch {
	case e.Retention < 0:
		reasons = append(reasons, "keeps messages without limit")
	case e.Retention > 0:
		reasons = append(reasons, fmt.Sprintf("keeps messages for %v", e.Retention))
	}
	if e.Lag > 0 {
		reasons = append(reasons, fmt.Sprintf("has a message of %v ago that is not read", e.Lag))
	}
	return fmt.Sprintf("kafkaadapter: records are kept for %v, and topic %q %s", e.Window,
		e.Topic, strings.Join(reasons, ", and "))
}

// CheckWindow compares the window of a Deduper with the time for which messages may be redelivered.
// That is how long the topics keep them, by a driver's Retentions, and how far the group is behind,
// by its Lags. Either map may be nil. It returns an error for each topic that exceeds the window,
// in the order of their names. Log or count the errors, before Run and now and then.
//
// It is a rule of thumb. Kafka drops whole segments, so a message may live up to segment.ms longer.
func CheckWindow(window time.Duration, retentions, lags map[string]time.Duration) []*WindowError {
	topics := make(map[string]*WindowError)
	at := func(topic string) *WindowError {
		if topics[topic] == nil {
			topics[topic] = &WindowError{Topic: topic, Window: window}
		}
		return topics[topic]
	}
	for topic, keeps := range retentions {
		if keeps < 0 || keeps > window {
			at(topic).Retention = keeps
		}
	}
	for topic, age := range lags {
		if age > window {
			at(topic).Lag = age
		}
	}
	var exceeded []*WindowError
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		exceeded = append(exceeded, topics[topic])
	}
	return exceeded
}
