package mutants

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// findingTests names, for bugs that random lives find late, a test of the engine that
// finds them at once. It is run in a process of its own.
var findingTests = map[string]string{
	"a call of a session is admitted for another one":                    "TestAPromptSpendsWhatItReserved",
	"a session calls models while all is paused":                         "TestAPromptSpendsWhatItReserved",
	"a session calls models that its prompt cannot pay":                  "TestAPromptSpendsWhatItReserved",
	"a call of a session takes nothing":                                  "TestAPromptSpendsWhatItReserved",
	"a call of a session that is lost is never charged":                  "TestACallOfASessionThatIsLostIsCharged",
	"what sessions spend does not count":                                 "TestAPromptSpendsWhatItReserved",
	"a prompt keeps its envelope":                                        "TestAPromptSpendsWhatItReserved",
	"prompts of a name have no limit":                                    "TestPromptsStopWhenTheDayIsSpent",
	"sessions of a day have no limit":                                    "TestPromptsStopWhenTheDayIsSpent",
	"sessions do not count for the day":                                  "TestPromptsStopWhenTheDayIsSpent",
	"a prompt is admitted without money":                                 "TestPromptsStopWhenTheDayIsSpent",
	"a session that is not metered waits for money":                      "TestReservationsDoNotKeepAnUnmeteredSessionWaiting",
	"a prompt of a person is admitted without money":                     "TestPromptsStopWhenTheDayIsSpent",
	"what a prompt reserves stays with the day":                          "TestPromptsStopWhenTheDayIsSpent",
	"what a prompt reserves is not counted above":                        "TestAPromptSpendsWhatItReserved",
	"a prompt reserves more than is left":                                "TestPromptsStopWhenTheDayIsSpent",
	"a day does not count what sessions spent before":                    "TestALaterDailyLimitCountsTheSessions",
	"an envelope of a prompt is not listed":                              "TestAPromptSpendsWhatItReserved",
	"an envelope of a prompt stays listed":                               "TestAPromptSpendsWhatItReserved",
	"sessions use any number of tokens of a day":                         "TestALaterDailyLimitCountsTheSessions",
	"tokens lock a prompt":                                               "TestTokensDoNotLockAPrompt",
	"a prompt uses the tokens of another day":                            "TestAPromptUsesTheTokensOfItsOwnDay",
	"a prompt gives nothing back":                                        "TestAPromptSpendsWhatItReserved",
	"a session does not see its budget":                                  "TestTheContextOfASession",
	"a wake is sent without money":                                       "TestAWakeIsNotSentWithoutMoney",
	"a cycle has any number of wakes":                                    "TestACycleHasNoMoreWakesThanAllowed",
	"a wake stays beyond its records":                                    "TestWakesAreForgotten",
	"wakes of every cycle count together":                                "TestWakesOfACycleAreBounded",
	"wakes of the sessions of all keys count together":                   "TestWakesOfACycleAreBounded",
	"wakes are not counted":                                              "TestAWakeIsSentOnce",
	"each decision has a row of its own":                                 "TestAWakeIsSentOnce",
	"any number of wake rows are kept":                                   "TestWakeRowsAreBounded",
	"rows of wakes are kept for ever":                                    "TestWakeRowsAreBounded",
	"a wake that led to nothing does not count":                          "TestTheSchedulerBacksOff",
	"a wake has no cooldown":                                             "TestAWakeIsSentOnce",
	"agents wake by messages without a limit":                            "TestAgentsWakeFourTimesAnHour",
	"times of wakes by agents are kept for ever":                         "TestAgentsWakeFourTimesAnHour",
	"messages of agents hide one of a person":                            "TestAgentsWakeFourTimesAnHour",
	"a wake that failed counts in its cycle":                             "TestWakesOfACycleAreBounded",
	"a wake that failed stays under way":                                 "TestAWakeThatIsNotAcceptedIsRefunded",
	"an accepted wake is not settled":                                    "TestAWakeIsSentOnce",
	"a wake goes before a person":                                        "TestPeopleGoBeforeAWake",
	"a session that has ended is due":                                    "TestEndedSessionsAreNotWoken",
	"a session that has ended has its name":                              "TestEndedSessionsAreNotWoken",
	"a name has rows of another's session":                               "TestWakesAreRefusedForAReason",
	"any name has rows":                                                  "TestWakeRowsAreBounded",
	"a wake is sent by old facts":                                        "TestAWakeIsDecidedByPresentFacts",
	"wakes do not see edited files":                                      "TestWakesFollowTheFiles",
	"wakes go on without the directory":                                  "TestWakesFollowTheFiles",
	"every process runs each cycle":                                      "TestOneProcessRunsACycle",
	"a process without the directory wakes":                              "TestOneProcessRunsACycle",
	"a session is looked at once":                                        "TestOneProcessRunsACycle",
	"a session that has ended is planned":                                "TestEndedSessionsAreNotWoken",
	"a subtask of a task that nobody holds is news":                      "TestASettledSubtaskOfNobodyIsIgnored",
	"what is kept about a settled subtask stays":                         "TestTheSchedulerWakesForASettledSubtask",
	"a settled subtask does not make a session due":                      "TestTheSchedulerWakesForASettledSubtask",
	"only the end of a subtask is news":                                  "TestTheSchedulerWakesForASettledSubtask",
	"a settled subtask is news for ever":                                 "TestTheSchedulerWakesForASettledSubtask",
	"sessions of agents that are gone count":                             "TestOnlyLiveSessionsOfANameCount",
	"a message does not make a session due":                              "TestTheSchedulerWakesForAMessage",
	"the last capability of a prompt counts":                             "TestACapabilityIsOfAnOpenPrompt",
	"a forged capability is admitted":                                    "TestACapabilityIsOfAnOpenPrompt",
	"a capability outlives its prompt":                                   "TestACapabilityIsOfAnOpenPrompt",
	"a capability outlives the deadline":                                 "TestACapabilityEndsAtTheDeadline",
	"a capability outlives its agent":                                    "TestACapabilityEndsWithItsAgent",
	"a capability outlives the registration of its agent":                "TestACapabilityEndsWithItsAgent",
	"a capability outlives the key of its agent":                         "TestACapabilityEndsWithTheKeyOfItsAgent",
	"a wake that wrote a message led to nothing":                         "TestAWakeThatLedToSomething",
	"a session writes to itself":                                         "TestSessionsSendMessages",
	"a repeated read of a session reads on":                              "TestSessionsReadMessages",
	"a peek of a session acknowledges":                                   "TestSessionsReadMessages",
	"a read of a session is forgotten":                                   "TestSessionsReadMessages",
	"a message to an agent wakes no session":                             "TestAWaitOfASessionEndsWithAMessage",
	"a run of any name sees the context of an agent":                     "TestTheContextOfARun",
	"a run sees one of several sessions":                                 "TestTheContextOfARun",
	"a context names any number of senders":                              "TestContextsAreBounded",
	"a turn is taken after a prompt that has failed":                     "TestASessionReservesItsNextTurn",
	"a repeated answer loses the turn":                                   "TestASessionReservesItsNextTurn",
	"a session that works is prompted":                                   "TestASessionWorksOnATask",
	"a session works on the task of another agent":                       "TestASessionWorksOnATask",
	"a session says of any prompt that it took a task":                   "TestASessionWorksOnATask",
	"a busy agent reserves a turn":                                       "TestABusyAgentReservesNoTurn",
	"a turn is reserved without a task":                                  "TestASessionReservesItsNextTurn",
	"a turn that was asked for is forgotten":                             "TestASessionReservesItsNextTurn",
	"a context shows work for others":                                    "TestTheContextOfASession",
	"a context shows any number of lanes":                                "TestContextsAreBounded",
	"an open prompt is deleted":                                          "TestAnOpenPromptIsKept",
	"an answer is put together of other pieces":                          "TestAnswersAreText",
	"half a character is stored":                                         "TestAnswersAreText",
	"an answer has any size":                                             "TestPromptsAreBounded",
	"a session that is being stopped is prompted":                        "TestSessionsAreStopped",
	"an expired prompt fails with its session":                           "TestAnExpiredPromptStaysExpired",
	"a new registration loses its sessions":                              "TestSessionsOfAnEarlierRegistrationAreLost",
	"a session goes on in the next registration":                         "TestSessionsOfAnEarlierRegistrationAreLost",
	"any key goes on with a session":                                     "TestSessionsBelongToOneRegistration",
	"a session without a report of its prompt is idle":                   "TestAnAcceptedPromptIsUnderWay",
	"an agent that is gone has its name":                                 "TestAKeyOwnsTheNamesOfItsAgents",
	"a dead agent has its name until it is judged":                       "TestAKeyOwnsTheNamesOfItsAgents",
	"a session that is gone is looked at":                                "TestHealthIsLookedAtWhileASessionLives",
	"a session has any number of events of health":                       "TestChangesOfHealthAreEvents",
	"a session becomes stale in silence":                                 "TestChangesOfHealthAreEvents",
	"a report of another health has no event":                            "TestChangesOfHealthAreEvents",
	"no sweep looks at the health of sessions":                           "TestChangesOfHealthAreEvents",
	"a session that has ended is looked at":                              "TestHealthIsLookedAtWhileASessionLives",
	"a prompt waits for ever":                                            "TestPromptsHaveDeadlines",
	"an adapter has any time to answer":                                  "TestPromptsHaveDeadlines",
	"a prompt that was accepted is offered again":                        "TestPromptsHaveDeadlines",
	"prompts are kept for ever":                                          "TestPromptsHaveDeadlines",
	"no prompt follows one that is overdue":                              "TestPromptsHaveDeadlines",
	"prompts stay open without their session":                            "TestSessionsAreTheWholeList",
	"sessions are kept for ever":                                         "TestSessionsAreTheWholeList",
	"a session that nobody prompted is kept":                             "TestSessionsAreTheWholeList",
	"a session outlives its agent":                                       "TestSessionsBelongToOneRegistration",
	"any incarnation reports sessions":                                   "TestSessionsBelongToOneRegistration",
	"an agent reports the session of another":                            "TestSessionsBelongToOneRegistration",
	"an agent begins any number of sessions":                             "TestNewSessionsAreBounded",
	"a session has any name":                                             "TestSessionsHaveTheNameOfTheirAgent",
	"a session that began again is deleted":                              "TestSessionsAreTheWholeList",
	"a session that was stopped lives":                                   "TestSessionsAreTheWholeList",
	"a prompt that hangs blocks its session":                             "TestPromptsHaveDeadlines",
	"a session that is not reported lives":                               "TestSessionsAreTheWholeList",
	"a session that has ended is prompted":                               "TestSessionsAreTheWholeList",
	"any number of prompts are open":                                     "TestPromptsAreBounded",
	"any number of prompts are kept":                                     "TestPromptsAreBounded",
	"a prompt is found with any session":                                 "TestPromptsAreSentOnce",
	"a page of prompts has any size":                                     "TestPromptsComeOneAfterTheOther",
	"a superseded process gets commands":                                 "TestSessionsBelongToOneRegistration",
	"a prompt is delivered after its deadline":                           "TestPromptsHaveDeadlines",
	"a superseded process answers a prompt":                              "TestSessionsBelongToOneRegistration",
	"an agent answers the prompt of another":                             "TestSessionsBelongToOneRegistration",
	"a repeated result is refused":                                       "TestPromptsComeOneAfterTheOther",
	"a prompt ends twice":                                                "TestPromptsComeOneAfterTheOther",
	"an answer has a gap":                                                "TestPromptsComeOneAfterTheOther",
	"a repeated piece is added again":                                    "TestPromptsComeOneAfterTheOther",
	"a prompt that was taken is offered again":                           "TestPromptsComeOneAfterTheOther",
	"a session gets one prompt only":                                     "TestPromptsComeOneAfterTheOther",
	"a session that has ended is stopped":                                "TestSessionsAreStopped",
	"a session is stopped again":                                         "TestSessionsAreStopped",
	"a conversation grows for ever":                                      "TestConversationsAreBounded",
	"a message is deleted before it was read":                            "TestConversationsAreBounded",
	"a name is given the revision of another":                            "TestARollbackNeedsARevisionOfTheName",
	"a name that is used again is forgotten":                             "TestPoliciesAreBounded",
	"two processes have the directory of policies":                       "TestOneServerHoldsThePolicyFiles",
	"files of another directory count":                                   "TestOneServerHoldsThePolicyFiles",
	"a process without the directory publishes files":                    "TestOneServerHoldsThePolicyFiles",
	"files count while nobody has their directory":                       "TestOneServerHoldsThePolicyFiles",
	"a name with a policy and a file is listed twice":                    "TestPoliciesAreListed",
	"a page of policies has any size":                                    "TestPagesOfPoliciesAreBounded",
	"a page of revisions has any size":                                   "TestPagesOfAPolicyHistoryAreBounded",
	"a policy has any number of revisions":                               "TestPoliciesAreBounded",
	"a change of a policy ignores the policy that is there":              "TestAPolicyIsChangedByItsDigest",
	"a policy that is not there is deleted":                              "TestAPolicyIsChangedByItsDigest",
	"a repeated id hides a message to another receiver":                  "TestAMessageIDNamesOneReceiver",
	"a run of any name counts the inbox of an agent":                     "TestAnUnregisteredRunReadsNoInboxOfAnAgent",
	"a run of any name reads the inbox of an agent":                      "TestAnUnregisteredRunReadsNoInboxOfAnAgent",
	"an unread message that is not listed stays without its task":        "TestConversationsAreBounded",
	"any number of names have a policy":                                  "TestPoliciesAreBounded",
	"messages are read out of order":                                     "TestMessagesOfPeopleAreReadOnce",
	"a credential sends any number of messages":                          "TestSendsOfACredentialAreBounded",
	"a count of no messages stays":                                       "TestMessagesAreDeleted",
	"a message that was read stays counted as unread":                    "TestInboxesAreBounded",
	"an inbox takes any number of messages":                              "TestInboxesAreBounded",
	"an agent that is gone gets messages":                                "TestToWhomAnAgentSendsMessages",
	"a task that has ended gets messages":                                "TestToWhomAnAgentSendsMessages",
	"a repeated id hides another message":                                "TestALostAnswerLosesNoMessage",
	"an answer names any message":                                        "TestToWhomAnAgentSendsMessages",
	"a message to an agent wakes no run":                                 "TestAWaitForMessagesEndsWithOne",
	"what an agent sends to people waits for itself":                     "TestToWhomAnAgentSendsMessages",
	"a key sends any amount of messages":                                 "TestMessagesHaveAQuota",
	"a tree has any amount of messages":                                  "TestMessagesHaveAQuota",
	"the conversation of the sender lacks its message":                   "TestToWhomAnAgentSendsMessages",
	"bytes of messages are not counted":                                  "TestMessagesHaveAQuota",
	"bytes in an inbox are not counted":                                  "TestInboxesAreBounded",
	"a deleted message stays counted":                                    "TestMessagesAreDeleted",
	"messages stay without their task":                                   "TestMessagesAreDeleted",
	"a page of messages has any size":                                    "TestShownMessagesAreBounded",
	"the past of a task has any size":                                    "TestShownMessagesAreBounded",
	"an agent that writes counts as a person":                            "TestTheKeyOfAnAgentReadsItsConversation",
	"an agent writes to itself":                                          "TestToWhomAnAgentSendsMessages",
	"a subtask cannot write to its parent":                               "TestToWhomAnAgentSendsMessages",
	"a task cannot write to its subtask":                                 "TestToWhomAnAgentSendsMessages",
	"an agent writes to any task":                                        "TestToWhomAnAgentSendsMessages",
	"a repeated read reads on":                                           "TestALostAnswerLosesNoMessage",
	"a peek acknowledges":                                                "TestMessagesOfPeopleAreReadOnce",
	"a read acknowledges nothing":                                        "TestMessagesOfPeopleAreReadOnce",
	"a read is forgotten":                                                "TestALostAnswerLosesNoMessage",
	"a delivery is not noted":                                            "TestAdaptersLearnOfMessages",
	"any key reads the conversation of an agent":                         "TestTheKeyOfAnAgentReadsItsConversation",
	"a watch names the same messages again":                              "TestAdaptersLearnOfMessages",
	"a conversation stays without its task":                              "TestMessagesAreDeleted",
	"messages are kept for ever":                                         "TestMessagesAreDeleted",
	"an inbox stays without its agent":                                   "TestMessagesOfAnAgentAreDeletedWithIt",
	"the scanner skips inboxes":                                          "TestTheScannerSeesEveryInbox",
	"a run whose key is gone sends messages":                             "TestMessagesOfRunKeysCountForTheirParent",
	"a kept bundle gets another size":                                    "TestTheSameBundleAgain",
	"no event names the agent":                                           "TestEventsNameTheAgent",
	"nobody keeps the timeout of an adapter":                             "TestLeasesShowTheTimeoutOfTheAdapter",
	"a wait ends the row of the calls beside it":                         "TestAWaitUnderWayStartsNoNewCount",
	"a superseded run stores a bundle":                                   "TestASupersededRunStoresNoBundle",
	"a run whose lease has run out stores a bundle":                      "TestABundleComesAfterTheEndOfItsRun",
	"a revoked key stores a bundle":                                      "TestARevokedKeyStoresNoBundle",
	"a bundle changes after the decision":                                "TestABundleComesAfterTheEndOfItsRun",
	"bytes of bundles are never counted down":                            "TestBundlesAreDeleted",
	"an upload stays counted":                                            "TestBundlesAreDeleted",
	"a deleted bundle stays counted":                                     "TestBundlesAreDeleted",
	"a kept bundle is sent again":                                        "TestABundleIsWholeOrNotThere",
	"an upload begins in the middle":                                     "TestASupersededRunStoresNoBundle",
	"a bundle of any size is stored":                                     "TestQuotasOfBundles",
	"a tree stores any number of bundles":                                "TestQuotasOfBundles",
	"a key stores any number of bundles":                                 "TestQuotasOfBundles",
	"each run key stores any number of bundles":                          "TestBundlesOfRunKeysCountForTheirParent",
	"a run without its run key stores a bundle":                          "TestBundlesOfRunKeysCountForTheirParent",
	"bundles are not counted":                                            "TestABundleIsWholeOrNotThere",
	"an upload is never given up":                                        "TestBundlesAreDeleted",
	"the upload of another run is taken over":                            "TestASupersededRunStoresNoBundle",
	"a bundle without all pieces is kept":                                "TestABundleIsWholeOrNotThere",
	"the bundle before stays":                                            "TestABundleIsWholeOrNotThere",
	"a kept bundle still counts as an upload":                            "TestTheSameBundleAgain",
	"a repeat is another bundle":                                         "TestTheSameBundleAgain",
	"half a bundle is read":                                              "TestABundleIsWholeOrNotThere",
	"a bundle stays without its task":                                    "TestBundlesAreDeleted",
	"an upload stays after its hour":                                     "TestBundlesAreDeleted",
	"a drain ends after one interval":                                    "TestDrainAndSilence",
	"a draining agent gets leases":                                       "TestAdvanceOfADrainingAgent",
	"a lost lease is not counted":                                        "TestLeaseExpiresByStoreTime",
	"a parent decides about whatever there is":                           "TestAParentDecidesOnWhatItWasShown",
	"a top-up for a decided hand-off adds money":                         "TestTwoOperatorsTopUpAHandoff",
	"a top-up answers any hand-off":                                      "TestATopUpThatAnswersNothing",
	"a top-up answers a hand-off that is to stay open":                   "TestATopUpThatAnswersNothing",
	"a refusal counts for ever":                                          "TestATopUpForgetsWhatWasAdmitted",
	"a top-up that is too small answers the hand-off":                    "TestATopUpThatAnswersNothing",
	"an end of a run is not counted":                                     "TestEndsAreCountedOnce",
	"an end of a run is counted again":                                   "TestEndsAreCountedOnce",
	"a charge is counted again":                                          "TestSpendingIsCountedByRoleAndModel",
	"money that came in counts as spent":                                 "TestSpendingIsCountedByRoleAndModel",
	"every server exports an event":                                      "TestTracePositionMovesOnce",
	"every role has a name":                                              "TestNamesOfRolesAreBounded",
	"a request for money names no amount":                                "TestARequestForMoneyNamesTheAmount",
	"a subtask is for nobody":                                            "TestAnAssigneeIsInherited",
	"no list has the tasks of an assignee":                               "TestAnAssigneeIsInherited",
	"everybody's hand-offs are listed":                                   "TestAnAssigneeIsAHint",
	"a claim for another person is not written":                          "TestAnAssigneeIsAHint",
	"a reminder comes again":                                             "TestRemindersComeOnce",
	"what is young is reminded of":                                       "TestRemindersComeOnce",
	"a rule for a role reminds of all":                                   "TestRemindersSelect",
	"a rule for a label reminds of all":                                  "TestRemindersSelect",
	"reminders wait for a clock that was set back":                       "TestRemindersAfterAClockWasSetBack",
	"a clock that was set back is forgotten":                             "TestRemindersAfterAClockWasSetBack",
	"cursors of reminders pile up":                                       "TestCursorsOfRemindersAreBounded",
	"a timeout does not name its task":                                   "TestFrequentEventsCarryNoFacts",
	"a title has any length":                                             "TestEventsCarryBoundedFacts",
	"an event has all labels":                                            "TestEventsCarryBoundedFacts",
	"every refusal for lack of money is a notice":                        "TestTheFirstRefusalSinceATopUpIsANotice",
	"a retry is kept for nobody":                                         "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a retry is kept for a worker that is gone":                          "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a retry is kept for a worker that let its lease expire":             "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a drained worker keeps its retries":                                 "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a worker that is gone when its retry is due keeps it":               "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a worker of another role takes a kept retry":                        "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a retry is kept for a minute":                                       "TestARetryIsKeptForTheWorkerWithTheWorkspace",
	"a removed agent counts as a failure of its tasks":                   "TestDrainDeadline",
	"a repeat of a task has what was submitted":                          "TestAnEditedInputReachesAllLaterRuns",
	"a report has rows that were counted twice":                          "TestSpendingByRoleModelAndLabel",
	"a report counts top-ups":                                            "TestSpendingByRoleModelAndLabel",
	"a report misses what was spent":                                     "TestSpendingByRoleModelAndLabel",
	"the ledger loses rows that were not counted yet":                    "TestTheLedgerKeepsWhatIsNotCounted",
	"any number of models has totals of its own":                         "TestSpendingOfManyNames",
	"an agent is offered workers without the capabilities that it needs": "TestFindAgents",
	"an agent is offered attached workers":                               "TestFindAgents",
	"a superseded run writes events":                                     "TestEventBudgetOfASupersededRun",
	"a task ends over its open subtasks":                                 "TestOpenSubtasksOfATaskThatEnds",
	"an attached agent takes tasks of others":                            "TestAttachedAgents",
	"attached agents are a pool":                                         "TestAttachedAgents",
	"attached agents are discovered":                                     "TestAttachedAgents",
	"attached agents are counted with the others":                        "TestAttachedAgents",
	"runs that need a look are not listed first":                         "TestLeasesAreSelected",
	"a key sees the attached agents of others":                           "TestAttachedAgents",
	"polling is a loop":                                                  "TestPollingIsNoLoop",
	"any paid call counts as the same":                                   "TestTheSamePaidCallIsRefusedFromTheEleventhOn",
	"the same paid call is never refused":                                "TestTheSamePaidCallIsRefusedFromTheEleventhOn",
	"no paid call is counted":                                            "TestTheSamePaidCallIsRefusedFromTheEleventhOn",
	"only the fifth repeated paid call has the nudge":                    "TestTheSamePaidCallIsRefusedFromTheEleventhOn",
	"each repeated paid call causes another nudge":                       "TestWhatDoesNotCountAsTheSamePaidCall",
	"a paid call that failed counts":                                     "TestWhatDoesNotCountAsTheSamePaidCall",
	"evidence changes after a person has finished":                       "TestEvidenceIsFrozenByFinishing",
	"nothing is said of an overdue drain":                                "TestDrainDeadline",
	"nothing settles automatically":                                      "TestNobodyKnowsWhatACallCost",
	"the events of a run are never over":                                 "TestAReleaseAfterTheExitOpensNothing",
	"the first edit stays":                                               "TestAnEditedInputReachesAllLaterRuns",
	"the next run waits for the deadline of a dead agent's lease":        "TestDeathIsTheEndOfTheProcess",
	"what comes after the end is paid by nobody":                         "TestUsageComesLateAndOverruns",
	"what comes late is not passed on":                                   "TestTheEndOfATaskChargesWhatWasReported",
	"what is unverified is never charged":                                "TestUnverifiedUsageIsChargedOnceThereIsMoney",
	"what was charged stays unverified":                                  "TestUnverifiedUsageIsChargedOnceThereIsMoney",
}

// slowMutants are the planted bugs that only hundreds of random lives find. They
// take most of the time of the gate, so they are planted only with every bug.
var slowMutants = []string{
	"a closed envelope is charged whatever the ones above it granted", "a nudge is told twice for one event",
	"a repair takes more than there is", "events are written after an exit that names none",
	"get_task shows what was submitted",
	"only the last report is recognised", "reclaim revives an ended lease", "whose process is gone keeps its grace",
}

func mutantsWithTest() (of []mutant) {
	for _, m := range allMutants() {
		if findingTests[m.name] != "" {
			of = append(of, m)
		}
	}
	return of
}

// engineTests builds the tests of the engine, in a folder that the operating system
// cleans up with those of TestMain.
var engineTests = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "engine.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, "../..").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of the engine: %w\n%s", err, out)
	}
	return program, nil
})

// huntByTest runs the test that finds a bug.
func huntByTest(t *testing.T, bug *kit.ScriptPatch) kit.Verdict {
	program, err := engineTests()
	kit.OK(t, err)
	var changes kit.LuaChanges
	for _, m := range allMutants() {
		if m.name == bug.Name {
			changes, err = m.plant(kit.LuaTexts(t))
			kit.OK(t, err)
		}
	}
	planted := filepath.Join(t.TempDir(), "planted.json")
	kit.WriteChanges(t, planted, changes)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	test := findingTests[bug.Name]
	cmd := exec.CommandContext(ctx, program, "-test.run=^"+test+"$/^Virtual$", "-test.v")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), kit.PlantedVariable+"="+planted)
	said, err := cmd.CombinedOutput()
	if !strings.Contains(string(said), "=== RUN   "+test+"/Virtual\n") {
		t.Errorf("%s has not run: %v\n%s", test, err, said)
	}
	return kit.Verdict{Found: strings.Contains(string(said), "--- FAIL: "+test+"/Virtual"), Rounds: 1,
		Said: string(said)}
}
