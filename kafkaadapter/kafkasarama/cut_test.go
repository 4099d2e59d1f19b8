package kafkasarama

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// A log is cut below the commit, as by an unclean election, and new messages get the offsets of
// those that were lost. sarama does not begin such a partition: it reports the offset as out of
// range. All messages are handled, and none is handled again. The log may have grown beyond the
// commit before the next session begins.
func TestLogCutBelowTheCommit(t *testing.T) {
	for _, later := range []int{1, 20} {
		t.Run(fmt.Sprint(later, " messages later"), func(t *testing.T) {
			var told toldErrors
			inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
				c.Observer.GroupError = told.add
			}, func(r *rig) {
				r.group.add(ids(10)...)
				r.after(time.Second)
				r.wantCommitted(10)
				r.group.change(func() { r.group.log[0] = r.group.log[0][:5] })
				r.group.add(news(3)...)
				r.group.rebalance()
				for range 1000 { // until sarama has refused, and before it joins again
					if r.after(time.Millisecond); len(told.all()) > 0 {
						break
					}
				}
				for i := range later {
					r.group.add(message(fmt.Sprint("later", i), ""))
				}
				r.after(10 * time.Second)
				for i := range 10 {
					r.wantRuns(fmt.Sprint("id", i), 1)
				}
				for i := range 3 {
					r.wantRuns(fmt.Sprint("new", i), 1)
				}
				for i := range later {
					r.wantRuns(fmt.Sprint("later", i), 1)
				}
				r.wantCommitted(int64(8 + later))
				assert.ErrorIs(t, errors.Join(told.all()...), kafkaadapter.ErrLogCut)
			})
		})
	}
}
