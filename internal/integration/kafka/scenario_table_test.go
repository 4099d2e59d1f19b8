package kafka_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scenarios are the situations that a consumer must handle, and the tests of each. All run on every
// flavor, except those that say otherwise.
//
// Each requires five things:
//
//   - O1: every message below a committed offset is on record at that moment, which the broker
//     checks with every commit;
//   - O2: each effect happens once;
//   - O3: in the end everything is committed and on record;
//   - O4: the effects of a key come in the order of its messages;
//   - O5: no goroutine and no claim is left.
var scenarios = []struct {
	number int
	what   string
	tests  []string
}{
	{1, "crash between claim and effect", []string{"TestCrashBetweenClaimAndEffect"}},
	{2, "crash between effect and record, at level Claimed, Asked and Atomic",
		[]string{"TestCrashBetweenEffectAndRecord", "TestCrashAfterMarkIrreversibleIsAsked",
			"TestCrashAroundTheTransaction"}},
	{3, "crash between record and commit", []string{"TestCrashBetweenRecordAndCommit"}},
	{4, "a commit is applied and answered with a timeout",
		[]string{"TestCommitAppliedButTimedOut"}},
	{5, "commits are refused once, twice, for ever; the coordinator moves",
		[]string{"TestRefusedCommitsAreRepeated", "TestCommitsAreRefusedForEver",
			"TestCoordinatorMoves", "TestRefusalsForEverAreTold", "TestFencedInstanceEnds"}},
	{6, "the last commit fails, then silence", []string{"TestRefusedCommitsAreRepeated"}},
	{7, "one key is stuck", []string{"TestOneStuckKey"}},
	{8, "a rebalance while handlers run, within and beyond the drain and the rebalance timeout",
		[]string{"TestRebalanceWhileWorking", "TestOverlapHasOneEffect",
			"TestRebalancesDoNotFence"}},
	{9, "a zombie wakes after its lease", []string{"TestZombieWakes"}},
	{10, "the owner of what is in flight elsewhere dies", []string{"TestOwnerOfTheSameIDDies"}},
	{11, "the store is down, slow, flapping",
		[]string{"TestStoreIsDown", "TestStoreIsUnsteady", "TestOutageLongerThanTheLease",
			"TestRedisIsDown"}},
	{12, "poison, dead letters, their topic down then up", []string{"TestPoisonAndItsReplay"}},
	{13, "gaps: transactions, compaction, a log that begins late",
		[]string{"TestCommittedAcrossGaps", "TestCommittedAcrossCompaction"}},
	{14, "the log begins after the commit; the commit is beyond the end",
		[]string{"TestOffsetOutOfRange"}},
	{15, "a topic is made again; partitions are added",
		[]string{"TestTopicIsMadeAgain", "TestPartitionsAreAdded",
			"TestPositionsOfARecreatedTopic"}},
	{16, "brokers restart and leave, leaders and coordinators move",
		[]string{"TestBrokerRestarts", "TestBrokersInTrouble"}},
	{17, "a slow partition beside a fast one", []string{"TestSlowPartitionBesideAFastOne"}},
	{18, "commits take long at a shared coordinator",
		[]string{"TestHandlersDoNotWaitForCommits", "TestCommitsDoNotWaitForFetches"}},
	{19, "the same id again; headers and values of every shape",
		[]string{"TestMessagesOfEveryShape", "TestMismatchIsParked",
			"TestNothingIsSkippedInSilence", "TestLargestMessages"}},
	{20, "Kafka to Kafka in transactions (its own consumer)", []string{"TestStreamed"}},
	{21, "a static member restarts; a group rolls from eager to cooperative",
		[]string{"TestStaticMemberRestarts", "TestRollFromEagerToCooperative",
			"TestWhatStaysGoesOn", "TestCommitsOfAStaticMember"}},
	{22, "shutdown: the context ends, the client is closed while draining, twice",
		[]string{"TestShutdown", "TestGroupClosedWhileDraining"}},
	{23, "all of it at random", []string{"TestSoak", "TestCommitsNeverRunAheadOfRecords"}},
	{24, "planted bugs are seen",
		[]string{"TestPlantedBugsAreSeen", "TestWrappedPlantedFaultsAreSeen"}},
	{25, "Apache Kafka, one node and three: killed, stopped, without in-sync replicas",
		[]string{"TestRealKafkaOneNode", "TestRealKafkaThreeNodes",
			"TestWebhooksOnceThroughAKill"}},
	{26, "partitions are owned: one is lost while its member lives, a member is killed, records are misplaced", []string{"TestLostPartitionStaysWithItsMember", "TestOwnedThroughAKill"}},
	{27, "a handler of sarama's, wrapped, is killed (its own consumer)",
		[]string{"TestWrappedThroughKills"}},
	{28, "messages fail, and are tried again in topics with delays", []string{"TestRetryTopics"}},
}

// Every test that the table names exists, under this name or one that begins with it.
func TestEveryScenarioHasATest(t *testing.T) {
	names := testNames(t)
	for i, s := range scenarios {
		assert.Equal(t, i+1, s.number, "the place of a scenario")
		for _, want := range s.tests {
			found := false
			for _, name := range names {
				found = found || strings.HasPrefix(name, want)
			}
			assert.True(t, found, "scenario %d, %s: there is no %s", s.number, s.what, want)
		}
	}
}

// testNames returns the names of the tests of this package.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(),
			nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil &&
				strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
