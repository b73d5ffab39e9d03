package picket

import "time"

// A session is a person's login at the console: a key was shown once, and a
// secret in a cookie stands for it until the session ends. The key is asked
// again with every request, so a revoked key ends its sessions at once.
const (
	// LoginLifetime is the longest a session lasts, however busy it is.
	LoginLifetime = 12 * time.Hour
	// LoginIdleTimeout is how long a session lasts without a request.
	LoginIdleTimeout = 2 * time.Hour
)

// Login is an open login.
type Login struct {
	Principal Principal
	OpenedAt  Instant
	ExpiresAt Instant // LoginLifetime after OpenedAt
}
