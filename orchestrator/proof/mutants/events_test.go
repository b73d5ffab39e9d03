package mutants

// eventMutants are planted bugs of the event log.
var eventMutants = []mutant{
	{"retention counts numbers that no event has",
		[]edit{{"counts-no-gaps", "local spare = entries + num(meta.seq) - to - max"}}},
	{"an adoption does not note its gap", []edit{{"notes-gaps", ""}}},
	{"events are marked as deleted that are kept", []edit{{"marks-deleted", "call('HSET', META, 'trimmed', F(cut))"}}},
	{"packed events are never old", []edit{{"age-of-packed", "return false"}}},
	{"copies of packed events are not compared", []edit{{"compares-copies", "and true"}}},
}
