package deduptest

import (
	"maps"
	"slices"
	"testing"

	"github.com/onceward/onceward/dedup/driver"
)

// property is one thing that every store must do.
type property struct {
	name string
	// prevents says what happens to a user of a store that fails it.
	prevents string
	check    func(*check)
}

// prove checks the property on a store of its own.
func (p property) prove(t testing.TB, h Harness) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("prevents: %s", p.prevents)
		}
	}()
	p.check(&check{TB: t, h: h, store: h.New(t)})
}

// needRecords are the checks that stores with Harness.DoneOnly are spared.
var needRecords = []string{"claim/origin_and_label", "result/byte_for_byte", "result/not_kept",
	"result/not_shared", "mismatch/every_state", "mismatch/incomparable"}

// needWindows are the checks that stores with one window are spared.
var needWindows = []string{"time/window_expiry", "time/window_of_each"}

// properties lists all that the contract requires.
var properties = []property{
	{"claim/fresh", "a new message that nobody may run", checkFresh},
	{"claim/in_flight", "two workers running one message at the same time", checkInFlight},
	{"claim/duplicate", "a finished effect that runs again", checkDuplicate},
	{"claim/stored_failure", "a hopeless message that is tried forever", checkStoredFailure},
	{"claim/mine_after_lost_reply",
		"our own claim taken for somebody else's, so that the message waits for a worker that does not exist", checkMine},
	{"claim/mine_after_lapse", "one attempt counted twice because its reply came late",
		checkMineLapsed},
	{"claim/origin_and_label", "duplicates that cannot be explained", checkOrigin},

	{"time/takeover", "a message stuck forever behind a crashed worker, or an effect that cannot tell the older owner", checkTakeover},
	{"time/live_claim_is_kept", "a second worker entering while the first still runs",
		checkLiveClaim},
	{"time/released", "a poison message that starts again from attempt 1 with every retry",
		checkReleased},
	{"time/hold_expiry", "a store that never forgets a dead claim, or a fence that falls back",
		checkHoldExpiry},
	{"time/window_expiry", "a store that grows forever", checkWindowExpiry},
	{"time/window_of_each", "a key that is forgotten, or kept, with another one of its batch",
		checkWindowOfEach},
	{"time/window_is_no_lease",
		"a crashed worker's message that waits for the whole window, or a record that is gone with its lease", checkWindowNoLease},

	{"renew/extends", "a slow handler that loses its claim while it renews", checkRenewExtends},
	{"renew/never_creates",
		"a late renewal that brings back a finished, released or forgotten claim",
		checkRenewNeverCreates},
	{"renew/own_lapsed_claim", "a paused worker that loses a claim nobody else wants",
		checkOwnLapsed},

	{"finish/owner", "an end that is not on record", checkFinishOwner},
	{"finish/sent_again", "a worker that believes its own record to be another's",
		checkFinishAgain},
	{"finish/with_the_unknown", "a record without the effect that was to be written with it",
		checkUnknownWith},
	{"finish/late_owner", "an old owner that overwrites or ends the claim of the new one",
		checkLateOwner},
	{"finish/other_claim",
		"an owner that takes the claim which a late copy of its request was granted for its own",
		checkOtherClaim},
	{"finish/stranger", "a record for a key that was never claimed", checkStranger},

	{"landed/absent", "a third run of an effect that two workers saw", checkAppliedAbsent},
	{"landed/unfinished", "a third run of an effect that has landed under a lost lease",
		checkAppliedUnfinished},
	{"landed/finished", "a result that changes after it was replayed", checkAppliedFinished},
	{"landed/without_claim", "a mark that is not kept, or that is first twice",
		checkAppliedWithoutClaim},

	{"danger/kept", "a payment that is made again because nobody knows of the first",
		checkIrreversibleKept},
	{"danger/ends", "an attempt that is known to have ended, and somebody is asked about",
		checkIrreversibleEnds},
	{"danger/life", "an uncertain key that is forgotten with its lease, and runs again",
		checkIrreversibleLife},
	{"danger/late_owner", "an old owner that begins what the new one has begun", checkIrreversibleLate},
	{"uncertain/take", "two who ask the downstream, or a crash between asking and knowing that lets a third one run", checkTake},
	{"uncertain/take_other", "a resolver that gets in where nothing is uncertain", checkTakeOther},
	{"uncertain/one_taker", "several who ask the downstream at once, and run again", checkOneTaker},
	{"uncertain/decided", "an operator's decision that does not hold", checkUncertainEnds},
	{"uncertain/listed", "an uncertain key that no list has, or a key that is not", checkUncertainListed},
	{"uncertain/asked", "an attempt counted, or two who ask, while somebody finds out", checkUncertainAsked},

	{"generation/takes_over",
		"a message that waits for its lease behind a consumer that has lost the partition, or an old owner that continues as if it were the only one", checkTakesOver},
	{"generation/late_owner",
		"an old generation that ends the claim of the new one, or an effect that is run a third time", checkTakenOverLate},
	{"generation/kept", "a live claim taken from a consumer that still has its partition",
		checkNotTakenOver},
	{"generation/danger", "a payment that is made again because of a rebalance",
		checkGenerationIrreversible},
	{"generation/other_states", "a finished effect that runs again after a rebalance",
		checkGenerationStates},
	{"generation/one_taker", "two consumers that both took a claim over", checkOneNewer},

	{"first/unclaimed", "a message that nobody has tried and that nobody claims ahead", checkFirst},
	{"first/left", "attempts of a message used up while it waits for its turn", checkFirstLeaves},
	{"first/other_states", "a finished effect that runs again, or a live owner that is overlooked",
		checkFirstStates},
	{"first/one_winner", "two who both claimed a new key", checkOneFirst},

	{"steps/kept", "a finished sub-effect that runs again", checkSteps},
	{"steps/outlive", "a sub-effect that runs again in the next attempt, or an end that carries what nobody reads", checkStepsOutlive},
	{"steps/not_shared", "a caller that changes the record by writing into a slice",
		checkStepsCopies},

	{"unused/not_counted", "a message that has used up its attempts, and no handler ever saw it",
		checkNotAttempted},
	{"unused/sent_again",
		"a poison message whose attempts are taken away again, or an old owner that takes them from the new one", checkNotAttemptedAgain},
	{"unused/danger", "a payment that is made again because a claim behind it was given back",
		checkNotAttemptedIrreversible},
	{"unused/contradiction", "a claim whose turn never came, and that says how it ended",
		checkNotAttemptedRefused},

	{"result/byte_for_byte", "a replay that differs from the first answer", checkResults},
	{"result/not_kept", "an effect without a result taken for one whose result is missing",
		checkNoResult},
	{"result/not_shared", "a caller that changes the record by writing into a slice",
		checkResultCopies},

	{"mismatch/every_state", "another payload answered with the result of the first",
		checkMismatch},
	{"mismatch/incomparable", "an upgrade of the digest that turns redeliveries into errors",
		checkIncomparable},

	{"forget/live_claim", "an operator's tool that lets two workers in", checkForgetLive},
	{"forget/claimable_again", "a forgotten key that still counts as done", checkForgetEnded},
	{"forget/older_owner", "an owner from before the Forget that undoes it", checkForgetOlderOwner},
	{"forget/fence", "an effect that refuses the new owner because its fence is small",
		checkForgetFence},
	{"forget/told", "a cache in another process that answers Duplicate for a forgotten key",
		checkForgetTold},

	{"window/told", "an effect whose record is refused, after it and after every redelivery",
		checkWindowTold},

	{"batch/mixed", "an answer that belongs to another item, or one bad item that fails its batch",
		checkBatchMixed},
	{"batch/empty", "a panic on an empty poll", checkBatchEmpty},
	{"batch/cancelled", "a claim made for somebody who has gone", checkCancelled},
	{"batch/lookup_changes_nothing", "a dashboard that keeps claims alive", checkLookupReads},

	{"concurrent/one_winner", "two workers that both won", checkOneWinner},
	{"concurrent/one_owner_at_a_time", "overlapping owners, or a fence that does not follow them",
		checkOneOwner},
	{"concurrent/random_walk", "whatever nobody thought of", checkRandomWalk},
}

// suite lists every property that holds for h.
func suite(h Harness) []property {
	all := slices.Clone(properties)
	all = slices.DeleteFunc(all, func(p property) bool {
		return h.OneWindow && slices.Contains(needWindows, p.name) ||
			h.SeenOnly && p.name == "claim/stored_failure" ||
			h.DoneOnly && slices.Contains(needRecords, p.name)
	})
	for _, name := range slices.Sorted(maps.Keys(h.Unreadable)) {
		plant := h.Unreadable[name]
		all = append(all, property{
			"unreadable/" + name,
			"a record of a newer version taken for absent (a second run) or for done (a lost message)",
			func(c *check) { checkUnreadable(c, plant) },
		})
	}
	return all
}

// planter puts a value the store cannot read under a key.
type planter = func(t testing.TB, store driver.Store, id driver.ID)
