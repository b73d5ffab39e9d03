package mutants

// pushMutants are the planted bugs of push configurations.
var pushMutants = []mutant{
	{"updates of tasks are not kept", []edit{{"notes-for-push", "return false"}}},
	{"an update makes no configuration due", []edit{{"makes-push-due", ""}}},
	{"the result of a task is not told", []edit{{"result-before-end", ""}}},
	{"changes of a task are not told", []edit{{"notes-status", ""}}},
	{"emissions are not told", []edit{{"notes-emission", ""}}},
	{"retention keeps push configurations", []edit{{"forgets-pushes", ""}}},
	{"a client has any number of push configurations", []edit{{"bounds-pushes-of-client", "if false then"}}},
	{"a task has any number of push configurations", []edit{{"bounds-pushes-of-task", "if false then"}}},
	{"a client sees the push configurations of others", []edit{{"client-configures-own", "if t and t.client then return t end"}}},
	{"a repeated claim gets another push configuration", []edit{{"claims-push-again", "local member"}}},
	{"a repeated step of a push configuration is refused", []edit{{"same-push-step", ""}}},
	{"a receiver that fails is never given up", []edit{{"gives-push-up", ""}}},
	{"a push configuration outlives its task", []edit{{"ends-push-with-task", "if false then"}}},
	{"a push configuration outlives the key of its client", []edit{{"ends-push-with-key", "return false"}}},
}
