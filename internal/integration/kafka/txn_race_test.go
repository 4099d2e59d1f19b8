//go:build race

package kafka_test

// sarama 1.61 reads its transaction's last error without a lock (IBM/sarama#2913), which the
// race detector reports when one of several messages fails. So a batch has one output.
const oneOutputPerBatch = true
