package mutants

// clientMutants are the planted bugs of tasks that clients submit.
var clientMutants = []mutant{
	{"tasks of clients are not listed", []edit{{"lists-for-client", ""}}},
	{"a task of a client that has ended counts as open", []edit{{"ends-for-client", "if false then"}}},
	{"open tasks of a client are not bounded", []edit{{"bounds-open-of-client", "if false then"}}},
	{"ended tasks of a client are not bounded", []edit{{"bounds-tasks-of-client", "if false then"}}},
	{"bytes of a client are not bounded", []edit{{"bounds-bytes-of-client", "if false then"}}},
	{"bytes of a client are not counted", []edit{{"counts-bytes-of-client", ""}}},
	{"bytes of deleted tasks of a client stay counted", []edit{{"uncounts-bytes-of-client", "local left = 1"}}},
	{"a task for an instance goes to any agent", []edit{{"keeps-for-instance", "if false then"}}},
	{"a task for an instance waits for one that is gone",
		[]edit{{"instance-lives", "return a.incarnation == t.instance_number"}}},
	{"an instance shows the tasks of others", []edit{{"instance-sees-own", ""}}},
	{"the queue of a pool is not bounded", []edit{{"bounds-queue-of-pool", "if false then"}}},
	{"a subtask does not count in the queue of a pool", []edit{{"bounds-queue-for-peers", ""}}},
	{"an instance that leaves takes new tasks", []edit{{"closed-instance", ""}}},
	{"an instance that leaves takes new subtasks", []edit{{"closed-instance-for-peers", ""}}},
	{"a client sees the tasks of others", []edit{{"client-sees-own", "local of = '*'"}}},
	{"a pool shows the tasks of others", []edit{{"pool-sees-own", "return t[1]"}}},
	{"retention keeps tasks of clients listed", []edit{{"forgets-for-client", ""}}},
	{"an id of a client stands for two tasks", []edit{{"same-client-task", ""}}},
}
