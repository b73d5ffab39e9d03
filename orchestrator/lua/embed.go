// Package lua holds the verbs that run in Redis, and puts them together as a library of
// functions. A file whose name begins with an underscore is a part, which other files
// name in their headers ("-- needs:"). Any other file is a verb, which becomes one
// function. The base names of all files are unique: that of a verb is its name, also in
// the metrics.
package lua

import "embed"

// Files are all Lua files, each in the folder of its subject.
//
//go:embed */*.lua
var Files embed.FS
