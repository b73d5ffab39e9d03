package mutants

// policyMutants are the planted bugs of wake policies. [findingTests] names what finds each.
var policyMutants = []mutant{
	{"a change of a policy ignores the policy that is there", []edit{{"same-policy", ""}}},
	{"a policy that is not there is deleted", []edit{{"deletes-what-is-there", "if false then"}}},
	{"any number of names have a policy", []edit{{"bounds-policies", "if false then"}}},
	{"a name that is used again is forgotten", []edit{{"keeps-used-names", ""}}},
	{"a policy has any number of revisions", []edit{{"bounds-revisions", "for _, old in ipairs({}) do"}}},
	{"a name is given the revision of another", []edit{{"revision-of-name", ""}}},
	{"two processes have the directory of policies", []edit{{"locks-directory", "if false then"}}},
	{"reports from before the lock count", []edit{
		{"reports-again", "return call('HGET', META, 'adopted') or '0'"}}},
	{"a new holder takes over the old reports", []edit{{"knows-since-lock", ""}}},
	{"a process releases the directory of another", []edit{
		{"ends-own-lock", "call('HSET', K('policy-lock'), 'holder', '', 'until', '0', 'had', NOW)"}}},
	{"files of another directory count", []edit{{"forgets-files", ""}}},
	{"a process without the directory publishes files", []edit{{"publishes-with-lock", ""}}},
	{"refused instructions end those before them", []edit{
		{"keeps-instructions", "texts[ARGV[i]] = ARGV[i + 3]"}}},
	{"files count while nobody has their directory", []edit{
		{"counts-with-lock", "local file = call('HGET', K('policy-files'), name) or ''"}}},
	{"a name with a policy and a file is listed twice", []edit{
		{"lists-names-once", "if name > after then names[#names + 1] = name end"}}},
	{"a page of policies has any size", []edit{{"bounds-listed-policies", ""}}},
	{"a page of revisions has any size", []edit{{"bounds-history", "if false then"}}},
}
