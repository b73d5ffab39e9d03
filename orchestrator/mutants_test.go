package orchestrator_test

// mutants are the planted bugs. Each is a mistake that somebody could make, in
// a file of lua/: old text, new text. emit( becomes type( where an event is to
// be lost: type takes any arguments and does nothing.
var mutants = []mutant{
	// Who still holds.
	{"no token compare", []edit{{"_fence", "if mine < current then", "if false then"}}},
	{"the current token counts as unknown", []edit{{"_fence", "if shown > current then", "if shown >= current then"}}},
	{"a foreign token may be shown", []edit{{"_fence", "if shown > 0 and shown < current and not", "if false and not"}}},
	{"an ended run still holds", []edit{{"_fence", "if r.state ~= 'running' or t.state ~= 'leased' or t.run ~= rid then", "if false then"}}},
	{"deadline test dropped", []edit{{"_fence", "if now >= deadline then", "if false then"}}},
	{"deadline judged by the clock on the wall", []edit{{"_fence", "if now >= deadline then", "if raw >= deadline then"}}},
	{"a confirmed lease holds until the reaper comes", []edit{{"_fence", "if now >= deadline then", "if now >= deadline and r.confirmed ~= '1' then"}}},
	{"secret test dropped", []edit{{"_fence", "if not r or r.secret ~= secret then", "if not r then"}}},
	{"the lease of another task will do", []edit{{"_fence", "if r.task ~= tid then", "if false then"}}},
	{"a repeat needs no secret", []edit{{"_fence", "if r[1] == tid and r[2] == secret and r[3] then", "if r[1] == tid and r[3] then"}}},
	{"any closing verb counts as a repeat", []edit{{"_fence", "if was == verb .. ':' .. hash then", "if was then"}}},
	{"the first call does not start the window", []edit{{"_fence", "call('ZADD', K('deadlines'), F(d), tid)", ""}}},
	{"evidence for ever", []edit{{"_evidence", "if r.state ~= 'running' and", "if false and"}}},
	// Leases.
	{"release by id, whoever holds", []edit{{"release", "local t, r, _, err = fenced(tid, rid, ARGV[3], ARGV[4])",
		"local t, r, err = load(K('task:', tid)), load(K('run:', rid))\nif not r or t.state ~= 'leased' then err = refuse('lease_expired') end"}}},
	{"an ended lease stays in deadlines", []edit{{"_end", "call('ZREM', K('deadlines'), tid)", ""}}},
	{"complete does not end the run", []edit{{"complete", "end_lease(tid, rid, 'completed', 'success')", "call('ZREM', K('deadlines'), tid)"}}},
	{"renew revives what is past its deadline", []edit{{"renew", "if err then return err end",
		"if err then\n  t, r, deadline = load(K('task:', tid)), load(K('run:', rid)), 0\n  if not r or r.state ~= 'running' or r.secret ~= ARGV[3] then return err end\nend"}}},
	{"renew gives the first, short deadline again", []edit{{"renew", "now + num(r.window)", "now + math.min(num(r.window), 30000)"}}},
	{"an unconfirmed lease has its full window", []edit{{"grant", "math.min(num(t.window), FIRST)", "num(t.window)"}}},
	{"a lease nobody received counts as a failure", []edit{{"expire_due", "confirmed and 'lease_expired' or 'undelivered'", "'lease_expired'"}}},
	{"the reaper comes half a minute early", []edit{{"expire_due", "'-inf', F(now), 'LIMIT'", "'-inf', F(now + 30000), 'LIMIT'"}}},
	{"a confirmed lease is taken back as undelivered", []edit{{"undeliver", " and r[3] == '0'", ""}}},
	{"cancel leaves the lease", []edit{{"cancel", "end_lease(tid, t.run, 'cancelled', 'cancelled')", ""}}},
	{"a hard pause leaves the runs", []edit{{"pause", "stop_runs(actor, num(ARGV[4]))", ""}}},
	// Grants.
	{"the token does not rise", []edit{{"grant", "floor) + 1", "floor, 1)"}}},
	{"pause is ignored", []edit{{"grant", "if paused ~= '' then", "if false then"}}},
	{"any role gets the task", []edit{{"grant", "if of ~= '' and of ~= role then return false end", ""}}},
	{"one capability is enough", []edit{{"grant", "if not string.find(caps, ',' .. need .. ',', 1, true) then return false end",
		"if string.find(caps, ',' .. need .. ',', 1, true) then return true end"}}},
	{"a repeated acquire hands out an ended lease", []edit{{"grant", "r.state ~= 'running' or t.run ~= rid or now >= deadline", "false"}}},
	{"the granted task stays in its lane", []edit{{"grant", "dequeue(tid, t)", ""}}},
	// Queues.
	{"priority inverted", []edit{{"_queue", "(9 - num(t.pri))", "num(t.pri)"}}},
	{"a lane keeps the place of its old head", []edit{{"_queue", "call('ZADD', K('lanes'), head[2], lane)", ""}}},
	{"the process of the last run is not waited for", []edit{{"_queue", "if r[1] == '1' and r[2] ~= '1' then", "if false then"}}},
	{"the end of a process frees nobody", []edit{{"run_exit", "open_gate(rid)", ""}}},
	{"a repeat of a task does not wait for its process", []edit{{"retry", "create(s, last_open(t),", "create(s, nil,"}}},
	{"cancel leaves the task in its lane", []edit{{"cancel", "dequeue(tid, t)", ""}}},
	{"the answer is not kept for who asked", []edit{{"_answer", "t.pin = agent", ""}}},
	// Failures.
	{"one attempt too many", []edit{{"_end", "failures < num(t.max_attempts)", "failures <= num(t.max_attempts)"}}},
	{"a lost lease is not counted", []edit{{"_end", "agent_failed = true, lease_expired = true }\nlocal", "agent_failed = true }\nlocal"}}},
	{"no backoff", []edit{{"_end", "now + backoff(t, failures)", "0"}}},
	{"backoff doubles too early", []edit{{"_end", "math.min(failures - 2, 30)", "math.min(failures - 1, 30)"}}},
	{"a final failure is tried again", []edit{{"_end", "if retryable and again", "if again"}}},
	{"an answered escalation keeps its failures", []edit{{"_answer", "call('HSET', K('task:', h.task), 'failures', '0')", ""}}},
	// People.
	{"a completed task can be retried", []edit{{"retry", "if t.state == 'completed' then", "if false then"}}},
	{"a hand-off is answered twice", []edit{{"_answer", "if h.state ~= 'open' then", "if false then"}}},
	{"review of what is not in review", []edit{{"review", "if t.state ~= 'review' then", "if false then"}}},
	{"deny is not applied", []edit{{"overdue", "if h.policy == 'deny' then", "if false then"}}},
	{"a claim is taken over", []edit{{"claim", "if h.claimed ~= '' and h.claimed ~= by then", "if false then"}}},
	// Records and events.
	{"no idempotency record", []edit{{"_prelude", "if key ~= '' then call('SET', K('req:', key)", "if false then call('SET', K('req:', key)"}}},
	{"the body of a repeat is not compared", []edit{{"_prelude", "if string.sub(was, 1, 64) ~= body then", "if false then"}}},
	{"report numbers stand still", []edit{{"report", "call('HINCRBY', K('task:', tid), 'reports', 1)", "num(t.reports) + 1"}}},
	{"only the last report is recognised", []edit{{"report", "call('LTRIM', K('seen:', rid), 0, 31)", "call('LTRIM', K('seen:', rid), 0, 0)"}}},
	{"an event is missing", []edit{{"complete", "emit('task.' .. state,", "type('task.' .. state,"}}},
	{"an event is told twice", []edit{{"run_events", "if not again then", "if true then"}}},
	{"an event tells the wrong state", []edit{{"fail", "'{\"state\":' .. quote(state) ..", "'{\"state\":' .. quote('queued') .."}}},
	{"a task stands in two state sets", []edit{{"_prelude", "call('ZREM', K('by-state:', t.state), id)", "call('PING')"}}},
	// Store time.
	{"store time leaps with the clock", []edit{{"_clock", "if d > 1000 then d = 1000 end", ""}}},
	{"store time goes back with the clock", []edit{{"_clock", "if d < 0 then", "if false then"}}},
	{"store time is not kept", []edit{{"_clock", "if d >= 100 then call('HSET', META, 'now', F(now), 'raw', F(raw)) end", ""}}},
}
