package kafkaconfluent

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// One broker learns of a new topic later than another. The driver asks the broker that knows it.
// The member that assigns partitions asks the other one, and assigns none. librdkafka alone never
// assigns them: when it finds them later, it knows them already from the driver's question.
func TestTopicThatOneBrokerDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.produce(0, 0, 10)
	var asked atomic.Int64 // when the topic was first asked for
	r.cluster.ControlKey(int16(kmsg.Metadata), func(q kmsg.Request) (kmsg.Response, error, bool) {
		r.cluster.KeepControl()
		request := q.(*kmsg.MetadataRequest)
		if len(request.Topics) != 1 || asked.CompareAndSwap(0, time.Now().UnixNano()) ||
			time.Since(time.Unix(0, asked.Load())) > 500*time.Millisecond {
			return nil, nil, false
		}
		answer := request.ResponseKind().(*kmsg.MetadataResponse)
		for node, addr := range r.cluster.ListenAddrs() {
			b := kmsg.NewMetadataResponseBroker()
			_, err := fmt.Sscanf(addr, "127.0.0.1:%d", &b.Port)
			assert.NoError(t, err, addr)
			b.NodeID, b.Host = int32(node), "127.0.0.1"
			answer.Brokers = append(answer.Brokers, b)
		}
		unknown := kmsg.NewMetadataResponseTopic()
		unknown.Topic = request.Topics[0].Topic
		unknown.ErrorCode = kerr.UnknownTopicOrPartition.Code
		answer.Topics = append(answer.Topics, unknown)
		return answer, nil, true
	})
	leave := r.join(r.config(nil), nil)
	r.committed()
	leave()
	r.once(10)
}
