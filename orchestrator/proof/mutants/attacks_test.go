package mutants

// auditMutants are planted bugs of what the audit log has a copy of.
var auditMutants = []mutant{
	{"an operator with the key of an agent counts as the agent",
		[]edit{{"acts-itself", "local itself = a.owner == by"}}},
	{"a heartbeat counts as an operator's act",
		[]edit{{"heartbeat-actor", "local actor = actor_name(id, a, by, ARGV[3])"}}},
	{"an agent that is named like a key is audited",
		[]edit{{"audits-people", "and string.sub(e.actor or '', 1, 4) == 'key_'"}}},
	{"an operator's act on an agent with the name of its key is not audited",
		[]edit{{"audits-people", "and e.actor ~= e.agent and string.sub(e.actor or '', 1, 4) == 'key_'"}}},
	{"the scanner skips the leases of keys", []edit{{"scans-keys", "if false then"}}},
	{"a repair that an operator made is not audited", []edit{{"audits-repair", "['agent.command'] = 'person',"}}},
}

// lateReportMutants are the planted bugs of what is reported late, and of what a
// reviewer was shown.
var lateReportMutants = []mutant{
	{"a release rewrites the exit", []edit{{"exit-once", "if r.exited == '1' then return end"}}},
	{"a launch is rewritten after the lease", []edit{{"launch-once", "return not events_over(r)"}}},
	{"a revoked key hands in evidence",
		[]edit{{"key-of-evidence", "if false then return refuse('lease_expired', 'cause', 'key_revoked') end"}}},
	{"output follows the end of its stream", []edit{{"output-closed", "if false then"}}},
	{"a revoked key is charged", []edit{{"charges-no-superseded", "or t.run ~= rid and 'superseded' or false"}}},
	{"evidence needs no digest",
		[]edit{{"same-digest", "if presented == current or presented == '' then return nil end"}}},
	{"the digest leaves out the evidence", []edit{{"stores-evidence", ""}}},
	{"the digest leaves out the exit",
		[]edit{{"digest", "return result .. '-' .. (changes or 'none') .. '-0' .. '-' .. (r[4] or '0'),"}}},
	{"replaced evidence is not told",
		[]edit{{"replaced", "type('run.evidence_replaced', { task = tid, run = rid, agent = r.agent, token = r.token, actor = rid },"}}},
	{"the digest leaves out replacements",
		[]edit{{"digest", "return result .. '-' .. (changes or 'none') .. '-' .. (r[3] or '0') .. '-0',"}}},
	{"the exit changes after the decision",
		[]edit{{"no-late-exit", "if false then return refuse('task_closed', 'kind', 'exit', 'state', decided) end"}}},
	{"a repair counts on money that was used",
		[]edit{{"used-of-source", "have_t, have_u = have_t + num(back.available_t) - used_t, have_u + num(back.available_u)"}}},
	{"a launch is never corrected", []edit{{"launch-once", "return (r.launched ~= '1') and not events_over(r)"}}},
}

// loginMutants are the planted bugs of logins.
var loginMutants = []mutant{
	{"a login code opens one session after another", []edit{{"used-code", "if false then"}}},
	{"a code that is shown again ends nothing", []edit{{"closes-on-reuse", "if false then"}}},
	{"a login code is not marked as used", []edit{{"marks-code", ""}}},
	{"a login code holds for ever", []edit{{"live-code", "if not id or false or not key_is_live(id) then"}}},
	{"a login code outlives its key", []edit{{"live-code", "if not id or now - num(c[3]) >= CODE_LIFE then"}}},
	{"a revoked key begins a login",
		[]edit{{"key-begins-login", "if not id then return refuse('unauthenticated', 'kind', 'key') end"}}},
	{"a repeated request opens a second session", []edit{{"same-login", "if true then"}}},
}

// runKeyMutants are the planted bugs of run keys.
var runKeyMutants = []mutant{
	{"a run key outlives the revocation of its parent",
		[]edit{{"revokes-run-keys", "local run_keys, run_leases = 0, 0"}}},
	{"a revocation marks no run key", []edit{{"marks-run-key", "call('HSET', K('key:', id), 'leases', 'kept')"}}},
	{"leases of run keys survive the revocation", []edit{{"ends-kept-leases", "if false then"}}},
	{"leases of run keys end although they should be kept", []edit{{"ends-kept-leases", "if k[3] ~= 'ended' then"}}},
	{"leases of run keys that were kept never end", []edit{{"ends-kept-leases", "if ends and k[1] == '0' then"}}},
	{"nothing ends the leases of run keys", []edit{{"chores-of-run-key", ""}}},
	{"the end of a run key ends its leases",
		[]edit{{"stops-run-key", "set_run_key_expiry(id, parent, RAW)\n    call('HSET', K('key:', id), 'leases', 'ended')"}}},
	{"an expired run key with leases is forgotten", []edit{{"keeps-holding-key", "if false then"}}},
	{"an ended run key lives on", []edit{{"stops-run-key", ""}}},
	{"an ended run key is renewed",
		[]edit{{"live-run-key", "if not parent then return refuse('unauthenticated', 'kind', 'key') end"}}},
	{"a key that is not a run key is renewed",
		[]edit{{"live-run-key", "parent = parent or ''\nif not key_is_live(id) then return refuse('unauthenticated', 'kind', 'key') end"}}},
	{"a run key lives longer than its parent", []edit{{"ends-with-parent", ""}}},
	{"a run key never ends", []edit{{"run-key-ends", "call('HSET', K('key:', id), 'expires', '0')"}}},
	{"a renewal changes nothing", []edit{{"renews-run-key", ""}}},
	{"the row of a run key is not deleted", []edit{{"deletes-run-key", "call('DEL', K('keyhash:', k[1]))"}}},
	{"the hash of a run key is not deleted", []edit{{"deletes-run-key", "call('DEL', K('key:', id))"}}},
	{"a deleted run key stays listed", []edit{{"unlists-run-key", ""}}},
	{"a deleted run key stays with its parent", []edit{{"leaves-parent", ""}}},
	{"expired run keys are never deleted", []edit{{"deletes-run-keys", ""}}},
	{"a new run key deletes no expired one", []edit{{"makes-room", ""}}},
	{"a run key makes another run key",
		[]edit{{"no-grandchild", "if false then return refuse('forbidden', 'kind', 'run_key') end"}}},
	{"a revoked key makes run keys",
		[]edit{{"parent-lives", "if false then return refuse('unauthenticated', 'kind', 'key') end"}}},
	{"run keys have no bound",
		[]edit{{"bounds-run-keys", "if call('ZCOUNT', of, '(' .. RAW, '+inf') >= most + 1 then"}}},
	{"expired run keys count", []edit{{"bounds-run-keys", "if call('ZCOUNT', of, '-inf', '+inf') >= most then"}}},
	{"a run key has the scope of its parent",
		[]edit{{"scope-of-run-key", "'scopes', 'agent,operator', 'created', RAW, 'revoked', '0',"}}},
	{"a run key is for any agent", []edit{{"agent-of-run-key", "'parent', parent)"}}},
}
