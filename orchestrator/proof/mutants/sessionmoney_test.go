package mutants

// sessionMoneyMutants are the planted bugs of the money of agent sessions. [findingTests] names what finds each.
var sessionMoneyMutants = []mutant{
	{"a call of a session is admitted for another one", []edit{{"session-call-of-another", ""}}},
	{"a session calls models while all is paused", []edit{{"session-reserves-none-paused", ""}}},
	{"a session calls models that its prompt cannot pay", []edit{{"session-call-is-covered", "or nil"}}},
	{"a call of a session takes nothing", []edit{{"session-takes-reserved", ""}}},
	{"a call of a session that is lost is never charged", []edit{{"session-call-ends", ""}}},
	{"what sessions spend does not count", []edit{{"counts-prompts", "return envelope_task(id) ~= ''"}}},
	{"a prompt keeps its envelope", []edit{{"ends-envelope-with-prompt", ""}}},
	{"prompts of a name have no limit", []edit{{"bounds-name", ""}}},
	{"sessions of a day have no limit", []edit{{"bounds-sessions-of-day", ""}}},
	{"sessions do not count for the day", []edit{{"bounds-day-of-sessions", ""}}},
	{"a prompt is admitted without money", []edit{{"admits-with-money", "return true"}}},
	{"a session that is not metered waits for money", []edit{{"admits-with-money", "return unspent > 0 and left > 0"}}},
	{"a prompt of a person is admitted without money", []edit{{"refuses-unpaid-prompt", "if true then return nil end"}}},
	{"what a prompt reserves stays with the day", []edit{{"takes-from-day", ""}}},
	{"what a prompt reserves is not counted above", []edit{{"grants-through", ""}}},
	{"a prompt reserves more than is left", []edit{{"reserves-what-is-left", "local amount = limits_of(name, limits).each"}}},
	{"a day does not count what sessions spent before", []edit{{"joins-day", "open_through(all, house)"}}},
	{"an envelope of a prompt is not listed", []edit{{"lists-envelope", ""}}},
	{"an envelope of a prompt stays listed", []edit{{"unlists-envelope", ""}}},
	{"sessions use any number of tokens of a day", []edit{{"bounds-tokens-of-day", "if false then"}}},
	{"a prompt gives nothing back", []edit{{"gives-back", ""}}},
	{"a session does not see its budget", []edit{{"context-of-prompt-money", ""}}},
	{"a wake is sent without money", []edit{{"bounds-wake-money", "if false then"}}},
}
