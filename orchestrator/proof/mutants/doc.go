// Package mutants plants bugs into the Lua scripts, one at a time. The suites
// have to find each of them.
package mutants
