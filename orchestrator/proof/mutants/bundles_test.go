package mutants

// bundleMutants are the planted bugs of bundles.
var bundleMutants = []mutant{
	{"a superseded run stores a bundle", []edit{{"newest-bundle", "if false then"}}},
	{"a run whose lease has run out stores a bundle", []edit{{"holder-of-bundle", "local lost"}}},
	{"a revoked key stores a bundle", []edit{{"key-of-bundle", "elseif false then"}}},
	{"a bundle changes after the decision", []edit{{"no-late-bundle", ""}}},
	{"bytes of bundles are never counted down", []edit{{"keeps-bundle-bytes", "if owner ~= '' and n > 0 then"}}},
	{"an upload stays counted", []edit{{"uncounts-upload", ""}}},
	{"a deleted bundle stays counted", []edit{{"uncounts-bundle", ""}}},
	{"a kept bundle is sent again", []edit{{"kept-bundle", ""}}},
	{"an upload begins in the middle", []edit{{"begins-upload", "if b.up_sha ~= sha then"}}},
	{"a bundle of any size is stored", []edit{{"bounds-bundle", "local no = nil"}}},
	{"a tree stores any number of bundles", []edit{{"bounds-tree-bundles", "or nil"}}},
	{"a key stores any number of bundles", []edit{{"bounds-key-bundles", "or false and check_quota('bundles_bytes', num(ARGV[10]),"}}},
	{"bundles are not counted", []edit{{"counts-bundle", ""}}},
	{"an upload is never given up", []edit{{"notes-upload", ""}}},
	{"the upload of another run is taken over", []edit{{"same-upload", "if b.up_sha ~= sha or b.up_size ~= size"}}},
	{"a bundle without all pieces is kept", []edit{{"all-pieces", "then"}}},
	{"the bundle before stays", []edit{{"replaces-bundle", ""}}},
	{"a bundle is deleted as an upload", []edit{{"ends-upload", ""}}},
	{"a repeat is another bundle", []edit{{"same-bundle", ""}}},
	{"a kept bundle gets another size", []edit{{"same-size", ""}}},
	{"half a bundle is read", []edit{{"whole-bundle", ""}}},
	{"a bundle stays without its task", []edit{{"deletes-bundle", ""}}},
	{"an upload stays after its hour", []edit{{"gives-upload-up", ""}}},
}
