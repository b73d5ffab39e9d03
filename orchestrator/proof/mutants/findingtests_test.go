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
	"a drain ends after one interval":                             "TestDrainAndSilence",
	"a draining agent gets leases":                                "TestAdvanceOfADrainingAgent",
	"a lost lease is not counted":                                 "TestLeaseExpiresByStoreTime",
	"a parent decides about whatever there is":                    "TestAParentDecidesOnWhatItWasShown",
	"a removed agent counts as a failure of its tasks":            "TestDrainDeadline",
	"a repeat of a task has what was submitted":                   "TestAnEditedInputReachesAllLaterRuns",
	"a superseded run writes events":                              "TestEventBudgetOfASupersededRun",
	"a task ends over its open subtasks":                          "TestOpenSubtasksOfATaskThatEnds",
	"evidence changes after a person has finished":                "TestEvidenceIsFrozenByFinishing",
	"nothing is said of an overdue drain":                         "TestDrainDeadline",
	"nothing settles automatically":                               "TestNobodyKnowsWhatACallCost",
	"the events of a run are never over":                          "TestAReleaseAfterTheExitOpensNothing",
	"the first edit stays":                                        "TestAnEditedInputReachesAllLaterRuns",
	"the next run waits for the deadline of a dead agent's lease": "TestDeathIsTheEndOfTheProcess",
	"what comes after the end is paid by nobody":                  "TestUsageComesLateAndOverruns",
	"what comes late is not passed on":                            "TestTheEndOfATaskChargesWhatWasReported",
	"what is unverified is never charged":                         "TestUnverifiedUsageIsChargedOnceThereIsMoney",
	"what was charged stays unverified":                           "TestUnverifiedUsageIsChargedOnceThereIsMoney",
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
