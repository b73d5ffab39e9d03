package picket

import "time"

// A session is a person's login at the console: a key was shown once, and a
// secret in a cookie stands for it until the session ends. The key is asked
// again with every request, so a revoked key ends its sessions at once.
const (
	// SessionLife is the longest a session lasts, however busy it is.
	SessionLife = 12 * time.Hour
	// SessionIdle is how long a session lasts without a request.
	SessionIdle = 2 * time.Hour
)

// Session is an open login.
type Session struct {
	Principal Principal
	OpenedAt  Instant
	ExpiresAt Instant // SessionLife after OpenedAt
}
