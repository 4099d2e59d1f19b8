package keys

import (
	"context"
	"fmt"
	"strings"

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
	at, found := offsets.Lookup(topic, e.Owner.Partition)
	what := fmt.Sprintf("Group %s has committed nothing in partition %d of %s", group,
		e.Owner.Partition, topic)
	if found && at.Err == nil && at.At >= 0 {
		what = fmt.Sprintf("Group %s has committed offset %d in partition %d of %s", group, at.At,
			e.Owner.Partition, topic)
	}
	next := "it is delivered again to the next owner of the partition"
	if found && at.At > e.Owner.Offset {
		next = "it is not delivered again"
	}
	e.Broker = append(e.Broker, fmt.Sprintf("%s. The newest claim was made with the message at %d: "+
		"%s.", what, e.Owner.Offset, next))
	return nil
}

// inClear returns the name of a message's source, for people.
func inClear(source string) string {
	if group, topic, ok := strings.Cut(source, "/"); ok {
		return fmt.Sprintf("group %s, topic %s", group, topic)
	}
	return source
}
