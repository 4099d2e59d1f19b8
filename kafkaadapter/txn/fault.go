package txn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

// action is what follows the run of a batch.
type action uint8

const (
	// advance: the transaction is committed.
	advance action = iota
	// again: the transaction is certainly aborted. The same messages run again, with the same
	// producer.
	again
	// renew: the producer cannot be used, or does not know the result of its transaction. It is
	// dropped. The next producer commits or aborts the transaction, and the committed offset says
	// which.
	renew
)

// isStale reports that the group does not have this member in its generation.
func isStale(err error) bool {
	return errors.Is(err, sarama.ErrIllegalGeneration) ||
		errors.Is(err, sarama.ErrUnknownMemberId) || errors.Is(err, sarama.ErrFencedInstancedId)
}

// refused reports that an error of CommitTxn means that nothing was committed: the group
// coordinator refused the offsets, and sarama ends no transaction after that. After every other
// error the request to end the transaction may have been sent, and its answer lost. AbortTxn must
// not follow then, because the transaction may be committed.
func refused(err error, status sarama.ProducerTxnStatusFlag) bool {
	return status&sarama.ProducerTxnFlagAbortableError != 0 &&
		(isStale(err) || errors.Is(err, sarama.ErrGroupAuthorizationFailed))
}

// unsendable decides whether the messages caused an error of SendMessages and would cause it every
// time. All other errors are the cluster's.
func unsendable(err error) error {
	var all sarama.ProducerErrors
	_ = errors.As(err, &all)
	for _, one := range all {
		if neverFits(one.Err) {
			return &runError{dedup.Permanent(
				fmt.Errorf("txn: a message to %s cannot be produced: %w", one.Msg.Topic, one.Err))}
		}
	}
	if len(all) > 0 { // ProducerErrors only says how many, and does not unwrap
		err = all[0].Err
	}
	return fmt.Errorf("txn: produce: %w", err)
}

// neverFits recognizes refusals of the broker and of sarama itself, some of which have no type.
func neverFits(err error) bool {
	var encoding sarama.PacketEncodingError
	var configured sarama.ConfigurationError
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
		errors.Is(err, sarama.ErrInvalidTopic) ||
		errors.Is(err, sarama.ErrInvalidRecord) || errors.Is(err, sarama.ErrInvalidPartition) ||
		errors.As(err, &encoding) ||
		errors.As(err, &configured) && strings.Contains(string(configured), "MaxMessageBytes")
}
