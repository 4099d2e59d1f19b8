// Package replay sends dead letters back to the topics they came from, under the ids they
// had, with kafkaadapter.Replay.
//
// Every partition of the dead-letter topic is read from the offset that the command's consumer
// group has committed to where the partition ended when the command began. The key of a message is
// freed, the message is sent with acks of all replicas, and then the group commits that the dead
// letter is done. A crash in between leaves it to the next run, which finds that the message was
// processed, or sends it once more, a duplicate.
//
// Messages that are left where they are (their key is uncertain or in flight, they are not dead
// letters, a filter leaves them out) stay ahead of the committed offset. The offset's metadata
// names the ones behind them that are done. So a later run neither loses the former nor sends the
// latter again: that would be harmless only for as long as their records live.
//
// A lease in Redis keeps two runs from replaying the same topic at a time.
package replay
