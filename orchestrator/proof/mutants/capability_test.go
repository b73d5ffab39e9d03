package mutants

// capabilityMutants are the planted bugs of session capabilities. [findingTests] names what finds each.
var capabilityMutants = []mutant{
	{"the last capability of a prompt counts", []edit{{"first-capability", ""}}},
	{"a forged capability is admitted", []edit{{"same-capability", "if not p.capability then return invalid('unknown') end"}}},
	{"a capability outlives its prompt", []edit{{"capability-of-open-prompt", ""}}},
	{"a capability outlives the deadline", []edit{{"capability-deadline", ""}}},
	{"a capability outlives its agent", []edit{{"capability-of-living-agent", ""}}},
	{"a capability outlives the registration of its agent", []edit{{"capability-of-registration", "if false then"}}},
	{"a capability outlives the key of its agent", []edit{{"capability-of-key", ""}}},
	{"a session writes to itself", []edit{{"session-tells-others", ""}}},
	{"a repeated read of a session reads on", []edit{{"session-reads-again", "if false then"}}},
	{"a peek of a session acknowledges", []edit{{"session-peeks", "if #ids > 0 then"}}},
	{"a read of a session is forgotten", []edit{{"session-remembers-read", ""}}},
	{"a message to an agent wakes no session", []edit{{"wakes-sessions", ""}}},
	{"a run of any name sees the context of an agent",
		[]edit{{"context-of-registered", "a = read_agent(r.agent, 'name', 'caps', 'max')"}}},
	{"a run sees one of several sessions", []edit{{"context-of-one-session",
		"if a.status and #own > 0 then out.session = session_row(own[1]) end"}}},
	{"a context names any number of senders", []edit{{"bounds-senders", "if m[1] and not s then"}}},
	{"a context shows work for others", []edit{{"context-of-covered-lanes", "local mine = true"}}},
	{"a context shows any number of lanes", []edit{{"bounds-context-lanes", "if i > LOOKS then"}}},
}
