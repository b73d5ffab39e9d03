package mutants

// keyMutants are the planted bugs of keys and of the format of the store.
var keyMutants = []mutant{
	{"a newer store is used", []edit{{"_prelude", "if num(format) > FORMAT then", "if false then"}}},
	{"a revoked key is granted a lease", []edit{{"_grant", "not key_is_live(arg(14))", "false"}}},
	{"a revocation leaves the leases",
		[]edit{{"key_revoke", "if leases == 'ended' and end_key_leases(", "if false and end_key_leases("}}},
	{"leases that are kept end",
		[]edit{{"key_revoke", "local leases = ending and 'ended' or kept", "local leases = 'ended'"}}},
	{"a lease forgets the key that acquired it",
		[]edit{{"_grant", "'incarnation', incarnation, 'key', with)", "'incarnation', incarnation)"}}},
}
