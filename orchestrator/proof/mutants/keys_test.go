package mutants

// keyMutants are the planted bugs of keys and of the format of the store.
var keyMutants = []mutant{
	{"a newer store is used",
		[]edit{{"known-format", "if false then return refuse('store_newer', 'format', format, 'known', FORMAT) end"}}},
	{"a revoked key is granted a lease", []edit{{"key-lives", "local invalid = arg(14) ~= '' and false"}}},
	{"a revocation leaves the leases",
		[]edit{{"revokes-leases", "if false and end_key_leases(ARGV[1], ARGV[2], limit) == limit then"}}},
	{"leases that are kept end", []edit{{"keeps-leases", "local leases = 'ended'"}}},
	{"a lease forgets the key that acquired it",
		[]edit{{"remembers-key", "'workspace', r.workspace, 'incarnation', incarnation)"}}},
}
