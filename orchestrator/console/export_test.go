package console

import "github.com/picket-dev/picket"

// NonceOf is a number as the forms of a login have it, by its cookie.
func NonceOf(cookie string) string {
	return (&request{token: picket.Secret(cookie)}).newNonce()
}

// EventJSON is an event as a page shows it.
var EventJSON = eventJSON
