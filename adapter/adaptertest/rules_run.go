//go:build unix

package adaptertest

import (
	"os"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// scriptWithChild is an agent with a child.
const scriptWithChild = `sleep 1000 & echo $$ $! > $1; wait`

// scriptIgnoringTERM is one that heeds no SIGTERM.
const scriptIgnoringTERM = `trap '' TERM; sleep 1000 & echo $$ $! > $1; while :; do wait; done`

// runRules are about how a run begins and ends when nothing is broken.
func runRules() []Rule {
	return []Rule{
		{"confirms the lease before it launches", "an agent would work under a lease that never arrived",
			confirmsFirst},
		{"announces its process and how it is held", "the next run would not wait for the old process to be gone",
			announces},
		{"reports a crash with code and class", "nobody would know why the run ended", reportsCrash},
		{"reports a signal", "nobody would know that the process was killed", reportsSignal},
		{"reports a process without a result", "a task would count as done that is not", reportsNoResult},
		{"hands in the output of onExit complete", "plain commands would have no result", handsInOutput},
		{"does one task after the other", "work would wait for a worker that is idle", runsOneAtATime},
		{"lets an agent that is done end on its own", "its last words would be lost", waitsForTree},
		{"obeys stop", "an operator's stop button would stop nothing", obeysStop},
		{"ends nobody for a nudge", "a hint would cost a run", survivesNudge},
		{"kills a tree that is deaf to SIGTERM", "an agent could outlive its task", killsDeaf},
		{"ships the output, each byte once", "logs would lie", shipsOutput},
		{"ends a run at its timeout and reports it", "an agent could run for ever", timesOut},
		{"gives its agent no credential of its own", "an agent could forge its exit, its output and its evidence",
			keepsItsCredential},
	}
}

func releasesLease(v View) bool { return len(v.Runs) > 0 && v.Runs[0].Released != nil }

func reportsEvidence(v View) bool { return len(v.Runs) > 0 && v.Runs[0].ExitReport != nil }

func confirmsFirst(b *ruleCheck) {
	id := b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	if v := b.s.View(id); v.Runs[0].Renewals == 0 {
		b.errorf("the agent was launched for a lease that was not renewed yet")
	}
}

func announces(b *ruleCheck) {
	id := b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	v := b.await(id, "run.launched", func(v View) bool { return slices.ContainsFunc(v.Runs[0].Events, reportsLaunch) })
	e := v.Runs[0].Events[slices.IndexFunc(v.Runs[0].Events, reportsLaunch)]
	if e.Containment != "" && !slices.Contains(picket.Containments, e.Containment) {
		b.errorf("the process is held by %q, want one of %v", e.Containment, picket.Containments)
	}
}

func reportsLaunch(e picket.RunEvent) bool { return e.Type == picket.EventRunLaunched }

func reportsCrash(b *ruleCheck) {
	v := b.await(b.run(Task{}, `exit 3`), "a release", releasesLease)
	if e := v.Runs[0].Released; e.Class != picket.ExitCrash || e.Code == nil || *e.Code != 3 {
		b.errorf("released with %+v, want class crash and code 3", e)
	}
}

func reportsSignal(b *ruleCheck) {
	v := b.await(b.run(Task{}, `kill -9 $$`), "a release", releasesLease)
	if e := v.Runs[0].Released; e.Class != picket.ExitCrash || e.Signal == nil || *e.Signal != "SIGKILL" {
		b.errorf("released with %+v, want class crash and SIGKILL", e)
	}
}

func reportsNoResult(b *ruleCheck) {
	v := b.await(b.run(Task{}, `exit 0`), "a release", releasesLease)
	if e := v.Runs[0].Released; e.Class != picket.ExitNoResult {
		b.errorf("released with %+v, want class no_result", e)
	}
}

func handsInOutput(b *ruleCheck) {
	id := b.run(Task{OnExit: picket.OnExitComplete}, `echo hi`)
	v := b.await(id, "the result", func(v View) bool { return v.State == picket.TaskReview })
	if string(v.Output) != `"hi\n"` {
		b.errorf("the output is %s", v.Output)
	}
	b.await(id, "how the process ended", reportsEvidence)
}

// keepsItsCredential lets the agent print its credential. An adapter that did not
// ask for two credentials passes.
func keepsItsCredential(b *ruleCheck) {
	v := b.await(b.run(Task{}, `printf %s "$PICKET_LEASE_TOKEN" > "$1.credential"`), "a release", releasesLease)
	got, err := os.ReadFile(b.fifo + ".credential")
	want := v.Runs[0].AgentToken
	if want == "" {
		want = v.Runs[0].LeaseToken
	}
	if err != nil || string(got) != want.Reveal() {
		b.errorf("the agent's PICKET_LEASE_TOKEN is not the credential of the agent: %v", err)
	}
}

func runsOneAtATime(b *ruleCheck) {
	ids := []string{b.run(Task{OnExit: picket.OnExitComplete}, `echo done`)}
	for range 2 {
		ids = append(ids, b.queue(Task{OnExit: picket.OnExitComplete}))
	}
	for _, id := range ids {
		v := b.await(id, "the result", func(v View) bool { return v.State == picket.TaskReview })
		if len(v.Runs) != 1 {
			b.errorf("the task took %d runs", len(v.Runs))
		}
	}
}

func waitsForTree(b *ruleCheck) {
	id := b.run(Task{}, `echo $$ > $1; sleep 0.5; echo last words; exit 0`)
	b.agentPIDs()
	b.s.Complete(id, picket.RawJSON(`"made"`))
	v := b.await(id, "how the process ended", reportsEvidence)
	if e := v.Runs[0].ExitReport; e.Class != picket.ExitSuccess || e.Code == nil || *e.Code != 0 {
		b.errorf("the process ended with %+v, want class success and code 0", e)
	}
	if string(v.Output) != `"made"` {
		b.errorf("the output is %s", v.Output)
	}
	b.await(id, "the last words", func(v View) bool { return v.Runs[0].Stdout == "last words\n" })
}

func obeysStop(b *ruleCheck) {
	id := b.run(Task{}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Pause(true)
	b.s.Command(id, picket.Command{Command: "stop", Reason: "enough"})
	v := b.await(id, "a release", releasesLease)
	b.expectDead(pids)
	if e := v.Runs[0].Released; e.Class != picket.ExitReleased {
		b.errorf("released with class %s, want released", e.Class)
	}
}

func survivesNudge(b *ruleCheck) {
	id := b.run(Task{Window: 2 * time.Second}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Command(id, picket.Command{Command: "nudge", Reason: "are you there?", Number: 1, Cause: picket.NudgeSilent})
	b.expectRenewals(id, pids, 2)
}

func killsDeaf(b *ruleCheck) {
	id := b.run(Task{}, scriptIgnoringTERM)
	pids := b.agentPIDs()
	b.s.Pause(true)
	b.s.Command(id, picket.Command{Command: "stop"})
	b.await(id, "a release", releasesLease)
	b.expectDead(pids)
}

func shipsOutput(b *ruleCheck) {
	b.s.Fail("/v1/run/logs", DropReply, 1)
	b.s.Fail("/v1/run/logs", Unavailable, 1)
	id := b.run(Task{OnExit: picket.OnExitComplete}, `echo one; echo $$ > $1; sleep 0.7; echo two; echo three >&2`)
	b.agentPIDs()
	v := b.await(id, "all output",
		func(v View) bool { return len(v.Runs[0].Stdout) >= 8 && len(v.Runs[0].Stderr) >= 6 })
	if v.Runs[0].Stdout != "one\ntwo\n" || v.Runs[0].Stderr != "three\n" {
		b.errorf("the logs are %q and %q", v.Runs[0].Stdout, v.Runs[0].Stderr)
	}
}

func timesOut(b *ruleCheck) {
	id := b.run(Task{Timeout: time.Second}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Pause(true)
	v := b.await(id, "a release", releasesLease)
	b.expectDead(pids)
	if e := v.Runs[0].Released; e.Class != picket.ExitTimeout {
		b.errorf("released with class %s, want timeout", e.Class)
	}
	v = b.await(id, "agent-timed-out", func(v View) bool { return countEvents(v, picket.EventAgentTimedOut) > 0 })
	for _, kind := range []string{picket.EventAgentTimedOut, picket.EventAgentTimeoutWarning} {
		if n := countEvents(v, kind); n > 1 {
			b.errorf("%s was told %d times", kind, n)
		}
	}
}

func countEvents(v View, kind string) (n int) {
	for _, e := range v.Runs[0].Events {
		if e.Type == kind {
			n++
		}
	}
	return n
}
