package orchestrator_test

import (
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/picket-dev/picket/internal/rig"
)

// attackPhase shows a planted bug to attacks that are the same every time, on a store
// of their own.
func attackPhase(attacks ...func(*attacker)) func(*testing.T, *scriptPatch) verdict {
	return func(t *testing.T, bug *scriptPatch) (v verdict) {
		synctest.Test(t, func(t *testing.T) {
			v = checkProperty(t, func(rt *rapid.T, n int) {
				if n > 1 {
					return // once is enough
				}
				s, stop := rig.Memory()
				defer stop()
				runAttacks(rt, s, "default", smallQuotas, bug, attacks...)
			})
		})
		return v
	}
}

// quotaMutants are the planted bugs of quotas.
var quotaMutants = []mutant{
	{"records of agents are not counted", []edit{{"register", "add_stored(by, more, bytes)", ""}}},
	{"metadata counts as if it were new",
		[]edit{{"register", "local bytes = #ARGV[14] - (from and call('STRLEN', K('metadata:', id)) or 0)",
			"local bytes = #ARGV[14]"}}},
	{"a record of before counts again", []edit{{"register", "local more = from and 0 or 1", "local more = 1"}}},
	{"deleted records stay counted",
		[]edit{{"retain", "add_stored(a.owner, -1, -call('STRLEN', K('metadata:', id)))", ""}}},
	{"counters fall below nothing",
		[]edit{{"_quota", "math.max(0, num(was[1]) + agents), math.max(0, num(was[2]) + bytes)",
			"num(was[1]) + agents, num(was[2]) + bytes"}}},
	{"the counters of a key without counted records are lost",
		[]edit{{"_quota", "if a > 0 or b > 0 then", "if a > 0 then"}}},
	{"kept answers are not bounded", []edit{{"reserve", "if not no and ARGV[14] == '1' then", "if false then"}}},
	{"kept answers are not counted", []edit{{"settle", "record_kept_call(root, slots, 0, 1, #ARGV[7])", ""}}},
	{"an answer beyond the bound is kept", []edit{{"settle", "and bytes + #ARGV[7] <= num(ARGV[10]) then", "then"}}},
	{"calls are counted for each task alone", []edit{{"_quota", "return t.root or tid end", "return tid end"}}},
	{"calls are not counted", []edit{{"reserve", "record_kept_call(root, slots, 1, 0, 0)", ""}}},
	{"open calls are not bounded", []edit{{"reserve", "call('ZCARD', K('calls:', tid))", "0"}}},
	{"subtasks of a tree are not counted", []edit{{"_create", "call('HINCRBY', K('tree:', t.root), 'made', 1)", ""}}},
	{"a repair is not bounded", []edit{{"review_subtask", "  if no then return no end\n", ""}}},
	{"runs are not bounded", []edit{{"_grant", "used >= most and", "false and"}}},
	{"one run more than the quota", []edit{{"_grant", "used >= most and", "used > most and"}}},
	{"a run that failed has no bound",
		[]edit{{"_retry_policy", "failures < num(t.max_attempts) and not last", "failures < num(t.max_attempts)"}}},
	{"a run that was given back has no bound",
		[]edit{{"_retry_policy", "if not failed and not last then", "if not failed then"}}},
	{"a task that is to fail asks a person",
		[]edit{{"_retry_policy", "if failed and t.escalate == 'fail' then", "if false then"}}},
	{"a deadline decides after the last run",
		[]edit{{"_handoff", "if policy == 'deny' and exhausted_runs(t) then policy = 'escalate' end", ""}}},
	{"a deadline begins the count of runs again",
		[]edit{{"_answer", "if by ~= 'deadline' then reset_run_count(t) end", "reset_run_count(t)"}}},
	{"an answer does not begin the count of runs again",
		[]edit{{"_answer", "if by ~= 'deadline' then reset_run_count(t) end", ""}}},
	{"a retry does not begin the count of runs again", []edit{{"retry", "reset_run_count(t)\n", ""}}},
	{"every run after the quota is the last",
		[]edit{{"_handoff", "put(t, 'runs_from', t.attempt, 'runs_used', '0')", "put(t, 'runs_from', t.attempt)"}}},
	{"bytes of reports are not bounded", []edit{{"report", "or size > num(ARGV[9])", ""}}},
	{"deleted reports stay counted",
		[]edit{{"report", "size - #call('LPOP', list)", "size - 0 * #call('LPOP', list)"}}},
}
