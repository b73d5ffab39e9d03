package web_test

import (
	"context"
	"testing"

	"github.com/picket-dev/picket/internal/web"
)

func TestANewerWaitDisplacesTheOlder(t *testing.T) {
	var waits web.NewestWaits[string]
	parent, leave := context.WithCancel(t.Context())
	first, endFirst := waits.Begin(parent, "a")
	other, endOther := waits.Begin(parent, "b")
	second, endSecond := waits.Begin(parent, "a")
	if !web.Displaced(first) || other.Err() != nil || second.Err() != nil {
		t.Errorf("the waits have ended with %v, %v and %v", first.Err(), other.Err(), second.Err())
	}
	endFirst() // it does not end the wait that displaced it
	third, endThird := waits.Begin(parent, "a")
	if !web.Displaced(second) || third.Err() != nil {
		t.Errorf("the waits have ended with %v and %v", second.Err(), third.Err())
	}
	leave()
	if third.Err() == nil || web.Displaced(third) || web.Displaced(other) {
		t.Errorf("waits of a client that went are displaced: %v", context.Cause(third))
	}
	endSecond()
	endThird()
	endOther()
}
