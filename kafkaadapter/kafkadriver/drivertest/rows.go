package drivertest

import "slices"

// rows are all rows of the suite.
func rows() []row {
	return slices.Concat(messageRows, flowRows, parkRows, commitRows(), storeRows, memberRows,
		ownRows, topicRows)
}

var messageRows = []row{
	{"messages/once", "a message without an effect, or an offset that is never committed", true,
		once},
	{"messages/duplicate", "an effect that happens again because its producer has sent it again",
		false, duplicate},
	{"messages/order", "an update of a key that overtakes the one before it", false, orderByKey},
	{"messages/retry", "a failed message that is skipped, or whose offset is committed", false,
		retry},
	{"messages/batch", "a batch whose one failure is lost, or repeats the others", false, batch},
	{"messages/unclaimed", "a delivery that the handler's own record never sees", false, unclaimed},
	{"messages/label", "a duplicate that cannot be explained", false, labels},
	{"messages/two_topics", "a message skipped because another topic has its id", false, twoTopics},
	{"messages/two_groups", "a group that skips what another group has handled", false, twoGroups},
	{"messages/oldest", "messages skipped before the first commit", false, oldest},
	{"messages/gap", "deleted messages that are skipped in silence", false, gap},
	{"messages/positions", "a message of a new topic taken for one of the old topic", false,
		positions},
}

var flowRows = []row{
	{"flow/pause", "a slow partition that fills the memory, or holds up the others", false, pause},
	{"flow/progress_in_hooks", "a hook that deadlocks the consumer", false, progressInHooks},
	{"flow/run_once", "two runs of one consumer", false, runOnce},
}

var parkRows = []row{
	{"park/permanent", "a hopeless message that is skipped", false, permanent},
	{"park/no_id", "a message without an id that is skipped", false, noID},
	{"park/letter", "an offset committed before its letter is kept, or a letter that is lost",
		false, replayedDeadLetter},
	{"park/large", "a letter that is too large and holds up its partition", false,
		largeDeadLetters},
	{"park/other_topic", "a missing dead-letter topic that holds up all topics", false,
		otherDeadLetters},
}

var storeRows = []row{
	{"store/held", "an offset committed before its record, and a message lost by a crash", false,
		heldRecord},
	{"store/outage", "effects that run on unrecorded, or a consumer that never recovers", false,
		outage},
}

var memberRows = []row{
	{"members/rebalance", "a partition that two members have at once, or hooks that lie about it",
		true, rebalance},
	{"members/come_and_go", "messages passed over when a partition comes back", true, comeAndGo},
	{"members/crash", "messages lost by a member that dies", true, crash},
	{"members/close", "an effect cut off, or not committed, when the consumer is ended", true,
		closeDrains},
	{"members/within_the_drain", "a message delivered again while its handler runs", true,
		withinTheDrain},
	{"members/beyond_the_drain", "a message that waits for the lease of a live member", true,
		beyondTheDrain},
	{"members/deaf", "a message that runs twice at the same time", false, deaf},
	{"members/lost", "commits for a partition that somebody else has", true, lost},
	{"members/long_drain", "a member that is expelled for draining", true, longDrain},
	{"members/instance", "two members of one instance that fence each other forever", false,
		instance},
}

var ownRows = []row{
	{"own/owned", "a key claimed in a partition that nobody owns", true, owned},
	{"own/lost", "effects in a partition that was lost", true, ownLost},
	{"own/generation", "a claim that an older owner can end", false, ownGeneration},
	{"own/partitions_added", "messages of new partitions that are never read, or misplaced", false,
		partitionsAdded},
	{"own/refused", "a consumer that asks forever for what it will never get", false, ownRefused},
}

var topicRows = []row{
	{"topics/recreated", "messages of a new topic skipped because of the old one's offset", true,
		recreated},
	{"topics/of_this_topic", "messages that are read again although they are committed", true,
		committedFor(thisTopic)},
	{"topics/of_a_deleted_topic", "messages skipped because a deleted topic had their offsets",
		true, committedFor(deletedTopic)},
	{"topics/of_a_foreign_member", "messages read again that another client has committed", true,
		committedFor(foreignMember)},
	{"topics/cut_log", "messages skipped because the log was cut below the group's offset", true,
		cutLog},
	{"topics/missing", "a topic that is never read, or holds up the others, because it came late",
		false, missingTopic},
	{"topics/missing_is_told", "a name that is mistyped, and nobody hears of it", false,
		missingIsTold},
}
