package mutants

// noticeMutants are the planted bugs of what events say about their tasks.
var noticeMutants = []mutant{
	{"a title has any length", []edit{{"clips-facts", "if true then return s end"}}},
	{"an event has all labels", []edit{{"bounds-label-facts", ""}}},
	{"every refusal for lack of money is a notice", []edit{{"first-since-top-up", "local first = true"}}},
	{"a request for money names no amount", []edit{{"asks-for-amount", "if false then"}}},
	{"a subtask is for nobody", []edit{{"inherits-assignee", "if false then"}}},
	{"no list has the tasks of an assignee", []edit{{"lists-assignee", ""}}},
	{"everybody's hand-offs are listed", []edit{{"same-assignee", "return true"}}},
	{"a claim for another person is not written", []edit{{"assigns-again", "if h.claimed ~= by then"}}},
	{"a reminder comes again", []edit{{"reminds-once", ""}, {"keeps-cursor", ""}}},
	{"what is young is reminded of", []edit{{"reminds-due", "if false then break end"}}},
	{"a rule for a role reminds of all", []edit{{"reminds-role", ""}}},
	{"a rule for a label reminds of all", []edit{{"reminds-label", "return true"}}},
	{"reminders wait for a clock that was set back",
		[]edit{{"reminds-after-clock", "if false then"}}},
	{"a clock that was set back is forgotten", []edit{{"begins-queue-again", ""}}},
	{"cursors of reminders pile up", []edit{{"bounds-cursors", ""}}},
	{"no event names the agent", []edit{{"names-agent", "return ''"}}},
	{"nobody keeps the timeout of an adapter", []edit{{"notes-timeout", "if true then return end"}}},
	{"a timeout does not name its task", []edit{{"facts-of-timeouts", "local data = ARGV[i + 2]"}}},
}
