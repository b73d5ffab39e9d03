package main

import (
	"context"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/picket-dev/picket/cmd/picket/demo"
)

// awaitInFile waits until a file matches: logged FILE PATTERN
func awaitInFile(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[1])
	err := demo.PollUntil(context.Background(),
		func() (bool, error) { return want.MatchString(ts.ReadFile(args[0])), nil })
	if err != nil {
		ts.Fatalf("%s never matched %s:\n%s", args[0], args[1], ts.ReadFile(args[0]))
	}
}
