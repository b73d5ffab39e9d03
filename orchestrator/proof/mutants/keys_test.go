package mutants

// keyMutants are the planted bugs of keys and of the format of the store.
var keyMutants = []mutant{
	{"a newer store is used",
		[]edit{{"known-format", "if false then return refuse('store_newer', 'format', format, 'known', FORMAT) end"}}},
	{"a store is used that is not converted",
		[]edit{{"waits-for-migration", "if num(format) <= FORMAT then return nil end"}}},
	{"a store is adopted that is not converted", []edit{{"adopts-converted", "local wrong = newer_format(meta.format)"}}},
	{"the position of another server is used", []edit{{"scans-again", ""}}},
	{"records beyond the bound of a step are left", []edit{{"looks-again", "local done = cursor == '0'"}}},
	{"a conversion that an earlier version has begun is left", []edit{{"keeps-strings", "if m[1] == '2' then"}}},
	{"a conversion has no end", []edit{{"ends-migration", ""}}},
	{"a revoked key is granted a lease", []edit{{"key-lives", "local invalid = with ~= '' and false"}}},
	{"a revocation leaves the leases",
		[]edit{{"revokes-leases", "if false and end_key_leases(ARGV[1], ARGV[2], limit) == limit then"}}},
	{"leases that are kept end", []edit{{"keeps-leases", "local leases = 'ended'"}}},
	{"a lease forgets the key that acquired it",
		[]edit{{"remembers-key", "'workspace', r.workspace, 'incarnation', incarnation)"}}},
	{"a client key has no limits", []edit{{"limits-of-client", "if false then"}}},
	{"every key has limits of clients", []edit{{"limits-of-client", "if true then"}}},
	{"a client key makes a run key", []edit{{"no-client-parent", "if false then"}}},
	{"no key makes a run key", []edit{{"no-client-parent", "if true then"}}},
}
