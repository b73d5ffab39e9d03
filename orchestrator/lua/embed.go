// Package lua holds the scripts that run in Redis. A file whose name begins with
// an underscore is a part, which scripts name in their headers ("-- needs:"); any
// other file is a verb, which becomes one script. The base names of all files are
// unique: that of a verb is the name of its script, also in the metrics.
package lua

import "embed"

// Files are all Lua files, each in the folder of its subject.
//
//go:embed */*.lua
var Files embed.FS
