package orchestrator

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// ClockOffset is how far a store is ahead of this machine.
var ClockOffset = clockOffset

// IsScriptError reports whether a script says a code to this process alone.
func IsScriptError(code picket.Code) bool { return store.IsInternalCode(string(code)) }

// HasWording reports whether a code that a script answers has a message and a
// remedy. Those of a conflict belong to its reasons, which the store's tests compare.
func HasWording(code picket.Code) bool {
	return code == picket.CodeStateConflict ||
		store.IsInternalCode(string(code)) || store.ParseRefusal(string(code)) != nil
}
