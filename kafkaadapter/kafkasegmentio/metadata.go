package kafkasegmentio

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// uuidVersion is the first version of Metadata that reports the UUIDs of topics: Kafka 2.8.
// kafka-go has versions up to 8.
const uuidVersion = 10

type topic struct {
	name       string
	uuid       [16]byte // zero: not known
	err        kafka.Error
	partitions int
}

// lookUp asks the group's coordinator for topics, and creates none.
func (c *cluster) lookUp(ctx context.Context, names []string) ([]topic, error) {
	return read[[]topic](ctx, c, &groupCall{group: c.group, call: call{key: protocol.Metadata,
		do: func(rw io.ReadWriter, _ int16) (any, error) { return c.lookUpBy(rw, names) }}})
}

// lookUpBy first asks which versions this broker has.
func (c *cluster) lookUpBy(rw io.ReadWriter, names []string) ([]topic, error) {
	versions, err := c.exchange(rw, protocol.ApiVersions, 0, false, nil)
	if err != nil {
		return nil, err
	}
	if newest(versions, protocol.Metadata) < uuidVersion {
		return c.withoutUUIDs(rw, names)
	}
	body := binary.AppendUvarint(nil, uint64(len(names)+1))
	for _, name := range names {
		body = append(body, make([]byte, 16)...) // no UUID
		body = binary.AppendUvarint(body, uint64(len(name)+1))
		body = append(append(body, name...), 0)
	}
	body = append(body, 0, 0, 0, 0) // creates nothing, asks for no permissions, no tags
	answer, err := c.exchange(rw, protocol.Metadata, uuidVersion, true, body)
	if err != nil {
		return nil, err
	}
	return topicsIn(answer)
}

// newest is the newest version of an API in an answer to ApiVersions, version 0.
func newest(versions []byte, key protocol.ApiKey) int16 {
	d := decoder{b: versions}
	d.skip(2)
	for n := d.int32(); n > 0 && !d.short; n-- {
		found := protocol.ApiKey(d.int16())
		d.skip(2)
		if highest := d.int16(); found == key {
			return highest
		}
	}
	return -1
}

// withoutUUIDs asks a broker before 2.8, in version 4, the first that can avoid creating a topic.
func (c *cluster) withoutUUIDs(rw io.ReadWriter, names []string) ([]topic, error) {
	answer, err := protocol.RoundTrip(rw, 4, 1, c.clientID, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, err
	}
	found, ok := answer.(*metadata.Response)
	if !ok {
		return nil, errNoAnswer
	}
	var out []topic
	for _, t := range found.Topics {
		out = append(out, topic{name: t.Name, err: kafka.Error(t.ErrorCode),
			partitions: len(t.Partitions)})
	}
	return out, nil
}

// topicsIn reads an answer of uuidVersion.
func topicsIn(answer []byte) (out []topic, err error) {
	d := decoder{b: answer}
	d.skip(4) // throttled
	for range d.array() {
		d.skip(4) // id of a broker
		d.text()
		d.skip(4) // port
		d.text()
		d.tags()
	}
	d.text()  // id of the cluster
	d.skip(4) // controller
	for range d.array() {
		t := topic{err: kafka.Error(d.int16()), name: d.text()}
		copy(t.uuid[:], d.skip(len(t.uuid)))
		d.skip(1) // internal
		t.partitions = d.array()
		for range t.partitions {
			d.skip(2 + 4 + 4 + 4) // error, number, leader, its epoch
			for range 3 {         // replicas: all, in sync, offline
				d.skip(4 * d.array())
			}
			d.tags()
		}
		d.skip(4) // permissions
		d.tags()
		out = append(out, t)
	}
	if d.short {
		return nil, fmt.Errorf("kafkasegmentio: metadata of topics: %w", io.ErrUnexpectedEOF)
	}
	return out, nil
}

// decoder reads the protocol's types. After the end it reads zeros.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) skip(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.short = nil, true
		return make([]byte, max(0, min(n, 16)))
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) int16() int16 { return int16(binary.BigEndian.Uint16(d.skip(2))) }
func (d *decoder) int32() int32 { return int32(binary.BigEndian.Uint32(d.skip(4))) }

func (d *decoder) uvarint() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(len(d.b))*8+8 {
		d.b, d.short = nil, true
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// array reads the length of an array, or of a string. A null array or string has the length 0.
func (d *decoder) array() int { return max(0, d.uvarint()-1) }

func (d *decoder) text() string { return string(d.skip(d.array())) }

func (d *decoder) tags() {
	for range d.uvarint() {
		d.uvarint()
		d.skip(d.uvarint())
	}
}
