package dedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCauseOfADuplicate(t *testing.T) {
	here := Origin{Source: "orders", Partition: 3, Offset: 42, Generation: 7}
	digested := Origin{SourceDigest: here.Digest(), Partition: 3, Offset: 42, Generation: 7}
	with := func(change func(*Origin)) Origin { o := here; change(&o); return o }
	const late = time.Hour
	for name, row := range map[string]struct {
		outcome Outcome
		from    Origin
		rec     Record
		want    Cause
	}{
		"acquired":  {Acquired, here, Record{Origin: here}, ""},
		"unknown":   {Unknown, here, Record{Origin: here}, ""},
		"uncertain": {Uncertain, here, Record{Origin: here}, ""},
		"mismatch": {Mismatch, here, Record{Origin: here, Age: 2 * late},
			KeyReuse},
		"same position": {Duplicate, here, Record{Origin: here}, BrokerRedelivery},
		"same position, digest": {Duplicate, here, Record{Origin: digested},
			BrokerRedelivery},
		"same position, in flight": {InFlight, here, Record{Origin: digested},
			BrokerRedelivery},
		"same position, new generation": {Duplicate, with(func(o *Origin) {
			o.Generation = 8
		}), Record{Origin: digested}, RebalanceReplay},
		"in flight, new generation": {InFlight, with(func(o *Origin) {
			o.Generation = 8
		}), Record{Origin: here}, RebalanceReplay},
		"other offset": {Duplicate, with(func(o *Origin) {
			o.Offset = 43
		}), Record{Origin: here}, ProducerRetry},
		"other partition": {Duplicate, with(func(o *Origin) {
			o.Partition = 4
		}), Record{Origin: here}, ProducerRetry},
		"other topic": {Duplicate, with(func(o *Origin) {
			o.Source = "payments"
		}), Record{Origin: here}, otherSource},
		"other topic, digest": {Duplicate, with(func(o *Origin) {
			o.Source = "payments"
		}), Record{Origin: digested}, otherSource},
		"other topic, in flight": {InFlight, with(func(o *Origin) {
			o.Source = "payments"
		}), Record{Origin: digested}, otherSource},
		"other topic, late": {Duplicate, with(func(o *Origin) {
			o.Source = "payments"
		}), Record{Origin: here, Age: 2 * late}, otherSource},
		"other topic, mismatch": {Mismatch, with(func(o *Origin) {
			o.Source = "payments"
		}), Record{Origin: here}, KeyReuse},
		"unknown origin of both":        {Duplicate, Origin{}, Record{}, ProducerRetry},
		"unknown origin of the record":  {Duplicate, here, Record{}, ProducerRetry},
		"unknown origin of the message": {Duplicate, Origin{}, Record{Origin: here}, ProducerRetry},
		"at the limit of age": {Duplicate, here, Record{Origin: here, Age: late},
			BrokerRedelivery},
		"beyond the limit of age": {Duplicate, here,
			Record{Origin: here, Age: late + 1}, Late},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, causeOf(row.outcome, &row.from, &row.rec, late))
		})
	}
}
