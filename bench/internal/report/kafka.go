package report

import (
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// areaKafka is the area whose rows are rates of consumers beside a broker.
const areaKafka = "kafka"

// bareLoop is the side without deduplication.
const bareLoop = "bare sarama loop"

const messagesPerSecond = "messages/s"

func ofKafka(r harness.Results) []figure {
	var all []figure
	for _, partitions := range []int{4, 16} {
		all = append(all, figure{
			fmt.Sprintf("consume-%d", partitions),
			fmt.Sprintf("Values of 100 bytes, %d partitions, one consumer. Dashed: the limits, a bare loop of the same client and batches on the same Redis without Kafka.", partitions),
			chart.Lines{
				Title: fmt.Sprintf("Consumed messages by share of duplicates, %d partitions", partitions), XLabel: "per cent duplicates", YLabel: messagesPerSecond,
				LogY: true, Series: sides(r, fmt.Sprintf("%d partitions, 100 B", partitions), messagesPerSecond),
			},
		})
	}
	return append(all, figure{"consumers", "New messages, 4 partitions, values of 100 bytes; the Redis batches are without Kafka.", consumersAt(r, "4 partitions, 100 B")})
}

// consumersAt are the rates of all sides without duplicates.
func consumersAt(r harness.Results, workload string) chart.Bars {
	b := chart.Bars{Title: "Consumers, no duplicates", XLabel: messagesPerSecond}
	told := make(map[string]bool)
	for _, row := range r.Rows {
		// The bare loop and the adapter without a store are of another order of magnitude.
		if row.Workload != workload || row.X != 0 || told[row.Side] || row.Side == bareLoop || row.Side == "adapter, unclaimed" {
			continue
		}
		told[row.Side] = true
		b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.Value, Color: consumerColor(row.Side)})
	}
	return b
}

func consumerColor(side string) int {
	if strings.HasPrefix(side, "adapter") {
		return 0
	}
	return 6
}
