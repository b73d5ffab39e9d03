// Package format proves that this build takes over the stores of earlier formats. Its
// test data are a store of each earlier format, what the build that wrote it answered
// about it, and the function library of that build.
//
// For format N, testdata has:
//
//   - formatN.rdb.gz, a file of Redis. The namespace "team" has what a story leaves in which
//     agents, people and clients work. Each other namespace has what a case of the package
//     [github.com/picket-dev/picket/orchestrator/proof/calls] leaves; the key rig-cases names
//     the cases. No invariant is broken in any of them.
//   - formatN.json.gz, what the engine answered about each record of each namespace.
//   - formatN.lua.gz, the function library as that build loaded it.
//
// TestWriteTheDataOfThisFormat writes these files with the build that it is part of:
//
//	PICKET_FORMAT_DATA=testdata go test ./orchestrator/proof/format -run Write -count=1
//
// Run it before the format is raised, and commit what it writes. Do not run it for a
// format that is out in the world: the files have to be those of the build of that time.
//
// The clock of the server stands still in the answers. The file has the time in the key
// rig-clock, where the verbs of these tests read it. No key of the file expires.
package format
