package dedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/driver"
)

func TestCauseOfADuplicate(t *testing.T) {
	here := driver.Origin{Source: "orders", Partition: 3, Offset: 42, Generation: 7}
	digested := driver.Origin{SourceDigest: here.Digest(), Partition: 3, Offset: 42, Generation: 7}
	with := func(change func(*driver.Origin)) driver.Origin { o := here; change(&o); return o }
	const late = time.Hour
	for name, row := range map[string]struct {
		outcome driver.Outcome
		from    driver.Origin
		rec     Record
		want    driver.Cause
	}{
		"acquired":  {Acquired, here, Record{Origin: here}, ""},
		"unknown":   {Unknown, here, Record{Origin: here}, ""},
		"uncertain": {Uncertain, here, Record{Origin: here}, ""},
		"mismatch": {Mismatch, here, Record{Origin: here, Age: 2 * late},
			driver.KeyReuse},
		"same position": {Duplicate, here, Record{Origin: here}, driver.BrokerRedelivery},
		"same position, digest": {Duplicate, here, Record{Origin: digested},
			driver.BrokerRedelivery},
		"same position, in flight": {InFlight, here, Record{Origin: digested},
			driver.BrokerRedelivery},
		"same position, new generation": {Duplicate, with(func(o *driver.Origin) {
			o.Generation = 8
		}), Record{Origin: digested}, driver.RebalanceReplay},
		"in flight, new generation": {InFlight, with(func(o *driver.Origin) {
			o.Generation = 8
		}), Record{Origin: here}, driver.RebalanceReplay},
		"other offset": {Duplicate, with(func(o *driver.Origin) {
			o.Offset = 43
		}), Record{Origin: here}, driver.ProducerRetry},
		"other partition": {Duplicate, with(func(o *driver.Origin) {
			o.Partition = 4
		}), Record{Origin: here}, driver.ProducerRetry},
		"other topic": {Duplicate, with(func(o *driver.Origin) {
			o.Source = "payments"
		}), Record{Origin: here}, driver.OtherSource},
		"other topic, digest": {Duplicate, with(func(o *driver.Origin) {
			o.Source = "payments"
		}), Record{Origin: digested}, driver.OtherSource},
		"other topic, in flight": {InFlight, with(func(o *driver.Origin) {
			o.Source = "payments"
		}), Record{Origin: digested}, driver.OtherSource},
		"other topic, late": {Duplicate, with(func(o *driver.Origin) {
			o.Source = "payments"
		}), Record{Origin: here, Age: 2 * late}, driver.OtherSource},
		"other topic, mismatch": {Mismatch, with(func(o *driver.Origin) {
			o.Source = "payments"
		}), Record{Origin: here}, driver.KeyReuse},
		"unknown origin of both": {Duplicate, driver.Origin{}, Record{},
			driver.ProducerRetry},
		"unknown origin of the record": {Duplicate, here, Record{}, driver.ProducerRetry},
		"unknown origin of the message": {Duplicate, driver.Origin{}, Record{Origin: here},
			driver.ProducerRetry},
		"at the limit of age": {Duplicate, here, Record{Origin: here, Age: late},
			driver.BrokerRedelivery},
		"beyond the limit of age": {Duplicate, here,
			Record{Origin: here, Age: late + 1}, driver.Late},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, causeOf(row.outcome, &row.from, &row.rec, late))
		})
	}
}
