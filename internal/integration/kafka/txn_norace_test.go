//go:build !race

package kafka_test

const oneOutputPerBatch = false
