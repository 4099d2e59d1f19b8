// Package replay sends dead letters back to the topics they came from, with the ids they had, by
// kafkaadapter.Replay.
//
// It reads every partition of the dead-letter topic. It begins at the offset that the command's
// consumer group has committed, and ends where the partition ended when the command began. For each
// dead letter it frees the key of the message, sends the message with acks of all replicas, and
// then commits that the dead letter is done. After a crash in between, the next run either finds
// that the message was processed, or sends it once more as a duplicate.
//
// Some messages are left where they are: their key is uncertain or in flight, they are not dead
// letters, or a filter leaves them out. The committed offset stays before the first of these. Its
// metadata names the later messages that are done. So a later run does not lose the messages that
// were left, and does not send the done ones again. Sending the done ones again would be harmless
// only as long as their records live.
//
// A lease in Redis keeps two runs from replaying the same topic at the same time.
package replay
