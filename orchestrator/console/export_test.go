package console

import "github.com/picket-dev/picket"

// NumberOf is a number as the forms of a login have it, by its cookie.
func NumberOf(cookie string) string {
	return (&visit{token: picket.Secret(cookie)}).newNumber()
}
