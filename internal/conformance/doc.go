// Package conformance is what the suites have in common that hold a running server against a
// document: the table of rules, requests and answers, expectations, the runner and the report.
//
// A suite has a document with a table. Each row is a rule, and the suite has a check for it. The
// runner runs the checks side by side. What it makes, such as keys, it takes away at its end.
package conformance
