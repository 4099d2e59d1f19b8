package keys

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceward/onceward/cmd/internal/server"
)

// askBroker finds the names of the group and the topic of the message that made the newest claim:
// the store keeps only their digest. It also says what the group has committed there.
func (e *Explanation) askBroker(ctx context.Context, o *Options) {
	if e.Owner == nil {
		return
	}
	client, err := o.Kafka.Open(ctx, "onceward-explain")
	if err == nil {
		defer client.Close()
		err = server.Unanswered(e.ofBroker(ctx, kadm.NewClient(client)), o.Kafka.Brokers...)
	}
	if err != nil {
		e.NotKnown = append(e.NotKnown, "what Kafka says: "+err.Error())
	}
}

func (e *Explanation) ofBroker(ctx context.Context, admin *kadm.Client) error {
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	for _, group := range groups.Groups() {
		for _, topic := range topics.Names() {
			if e.Owner.is(group + "/" + topic) {
				return e.committed(ctx, admin, group, topic)
			}
		}
	}
	e.NotKnown = append(e.NotKnown, "the group and the topic of the owner: none of these brokers has "+
		"the digest "+e.Owner.SourceDigest)
	return nil
}

// committed compares the message's offset with what its group has committed.
func (e *Explanation) committed(ctx context.Context, admin *kadm.Client, group,
	topic string) error {
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	what, next := "nothing", "it is delivered again to the next owner of the partition"
	at, found := offsets.Lookup(topic, e.Owner.Partition)
	switch {
	case found && at.Err != nil:
		return at.Err
	case found && at.At >= 0:
		what = fmt.Sprintf("offset %d", at.At)
	}
	if found && at.At > e.Owner.Offset {
		next = "it is not delivered again"
	}
	e.Broker = append(e.Broker, fmt.Sprintf("Group %s has committed %s in partition %d of %s. "+
		"The newest claim was made with the message at %d: %s.", group, what, e.Owner.Partition,
		topic, e.Owner.Offset, next))
	return nil
}
