package orchestrator_test

// crewMutants are planted bugs of agents: who takes part, and what becomes of
// the leases of those who do not any more.
var crewMutants = []mutant{
	// Who still holds.
	{"the lease of a dead agent still holds", []edit{{"_fence", "if lost then", "if false then"}}},
	{"a lease of an earlier registration holds", []edit{{"_agent", "if a.incarnation == r.incarnation and not GONE[a.status] then return nil end",
		"if not GONE[a.status] then return nil end"}}},
	{"a repeated acquire hands out the lease of a dead agent", []edit{{"_grant", "now < deadline and not orphaned(r) then", "now < deadline then"}}},
	{"a lease of a registered agent is not listed", []edit{{"_grant", "call('ZADD', K('holder:', agent .. ':' .. incarnation), meta.granted, tid)", "type(tid)"}}},
	{"an ended lease stays listed", []edit{{"_end", "call('ZREM', K('holder:', r.agent .. ':' .. r.incarnation), tid)", ""}}},
	// Silence.
	{"unhealthy at the threshold already", []edit{{"_agent", "num(a.unhealthy) * 1000 + 1 end", "num(a.unhealthy) * 1000 end"}}},
	{"dead at the threshold already", []edit{{"_agent", "local silent = num(a.beat_at) + num(a.dead) * 1000 + 1", "local silent = num(a.beat_at) + num(a.dead) * 1000"}}},
	{"silence is measured by the clock on the wall", []edit{{"heartbeat", "'beat_at', NOW)", "'beat_at', RAW)"}}},
	{"agents are judged by the clock on the wall", []edit{{"_agent", "if not GONE[a.status] and now >= judge_at(a) then", "if not GONE[a.status] and raw >= judge_at(a) then"}}},
	{"a heartbeat does not reset the silence", []edit{{"heartbeat", "a.beat_at = NOW\nput(a, 'beat', RAW, 'beat_at', NOW)", "put(a, 'beat', RAW)"}}},
	{"a refused heartbeat resets the silence", []edit{{"heartbeat", "if no then return no end", "if a.status then call('HSET', a[1], 'beat_at', NOW) end\nif no then return no end"}}},
	{"a heartbeat moves the version", []edit{{"heartbeat", "'beat_at', NOW)", "'beat_at', NOW, 'version', F(num(a.version) + 1))"}}},
	{"a heartbeat brings back who is gone", []edit{{"heartbeat", " or gone(a, ARGV[4])", ""}}},
	{"whose heartbeats resume stays unhealthy", []edit{{"heartbeat", "if a.status == 'unhealthy' then lifecycle", "if false then lifecycle"}}},
	{"dead without having been unhealthy", []edit{
		{"judge", "if a.status == 'active' and now >= judge_at(a) then", "if a.status == 'active' and now >= judge_at(a) and now <= num(a.beat_at) + num(a.dead) * 1000 then"},
		{"judge", "if a.status == 'unhealthy' or silent", "if a.status ~= 'draining' or silent"}}},
	{"whoever is gone is judged again", []edit{{"_agent", "call('ZREM', K('silence'), id)", ""}}},
	// Death and what follows from it.
	{"leases end before the word about their agent", []edit{{"_gone",
		"lifecycle(id, a, to, reason, actor)\n  local n = limit > 0 and dismiss(id, a.incarnation, cause, actor, limit) or 0",
		"local n = limit > 0 and dismiss(id, a.incarnation, cause, actor, limit) or 0\n  lifecycle(id, a, to, reason, actor)"}}},
	{"the rest of the leases ends for another reason", []edit{{"_gone", "a.incarnation .. ':' .. cause)", "a.incarnation .. ':agent_dead')"}}},
	{"the rest of the leases is forgotten", []edit{{"_gone", "if n == limit and", "if false and"}}},
	{"a death counts no failure", []edit{{"_after", "lease_expired = true, agent_dead = true }\nlocal REQUEUED", "lease_expired = true }\nlocal REQUEUED"}}},
	{"a removed agent counts as a failure of its tasks", []edit{{"_gone", "reason == 'agent_dead' and 'agent_dead' or 'released'", "'agent_dead'"}}},
	{"the next run waits for the deadline of a dead agent's lease", []edit{{"_gone", "math.min(dark, num(call('ZSCORE', K('deadlines'), tid)))", "num(call('ZSCORE', K('deadlines'), tid))"}}},
	// Registration.
	{"incarnations begin anew after an adoption", []edit{{"register", "math.max(num(meta.incarnations), floor) + 1", "num(meta.incarnations) + 1"}}},
	{"incarnations are counted for each agent", []edit{{"register", "math.max(num(meta.incarnations), floor) + 1", "math.max(num(a.incarnation), floor) + 1"}}},
	{"another key takes over a dead id", []edit{{"register", "if from and a.owner ~= by then", "if false then"}}},
	{"a live id is registered again", []edit{{"register", "if from and not GONE[from] then", "if false then"}}},
	{"the commands of a life before are carried over", []edit{{"register", "call('DEL', K('commands:', id))", ""}}},
	{"anybody may act for an agent", []edit{{"_agent", "if a.owner ~= by and operator ~= '1' then", "if false then"}}},
	{"a superseded process counts as the agent", []edit{{"_agent", "if num(incarnation) > 0 and num(incarnation) < num(a.incarnation) then", "if false then"}}},
	{"an agent stands in two rosters", []edit{{"_agent", "call('ZREM', K('roster:', from), id)", ""}}},
	{"a change is made for an outdated version", []edit{{"_agent", "if ARGV[i] == a.version then", "if true then"}}},
	// Draining.
	{"a draining agent gets leases", []edit{{"_grant", "if not no and a.status == 'draining' then", "if false then"}}},
	{"an unhealthy agent gets no leases", []edit{{"_grant", "if not no and a.status == 'draining' then", "if not no and a.status ~= 'active' then"}}},
	{"a drain is over with a lease left", []edit{{"_end", " and call('ZCARD', holder(id, a)) == 0 then", " then"}}},
	{"a heartbeat ends the drain of who holds a lease", []edit{{"heartbeat", "if a.status == 'draining' and call('ZCARD', holder(id, a)) == 0 then", "if a.status == 'draining' then"}}},
	{"a drain never ends by itself", []edit{{"_end", "if a.status == 'draining' and", "if false and"}}},
	{"a drain ends after one interval", []edit{{"_drain", "call('ZCARD', holder(id, a)) == 0 and", "true and"}}},
	{"nothing is said of an overdue drain", []edit{{"judge", "emit('agent.drain_overdue',", "type('agent.drain_overdue',"}}},
	{"an order to drain stays after the drain", []edit{{"_drain", "a.drain_command ~= '' and handled(id, a, a.drain_command, actor) or {}", "{}"}}},
	// Commands.
	{"a handled command comes again", []edit{{"_drain", "call('HDEL', K('commands:', id), cid)", ""}}},
	{"what an agent works on without a lease is not said", []edit{{"heartbeat", "not holds(ARGV[i]) then", "false then"}}},
}
