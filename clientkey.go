package picket

import (
	"cmp"
	"fmt"
	"slices"
)

// AnyRole is the only entry of [ClientLimits].Roles if a client key may submit tasks
// to every role that accepts them.
const AnyRole = "*"

// The bounds of [ClientLimits].
const (
	MaxClientRoles    = 32
	MaxClientOpen     = 10_000
	DefaultClientOpen = 100
	MaxClientRate     = 6_000 // requests a minute
)

// ClientLimits are what a key with [ScopeClient] may do.
type ClientLimits struct {
	// Roles are the roles to which the key may submit tasks: 1 to [MaxClientRoles] names,
	// or [AnyRole] alone.
	Roles []string `json:"roles"`
	// MaxOpen is how many tasks that the key has submitted may be open at once: 1 to
	// [MaxClientOpen]. In a request, 0 means [DefaultClientOpen].
	MaxOpen int `json:"maxOpen,omitzero"`
	// RatePerMinute is how many requests a minute the key sends to one server: 1 to
	// [MaxClientRate]. 0 means the general rate of keys.
	RatePerMinute int `json:"ratePerMinute,omitzero"`
}

// Allows reports whether the key may submit a task to the role. The limits of a key
// without scope client are nil, and allow no role. A task without a role is allowed
// only by [AnyRole].
func (l *ClientLimits) Allows(role string) bool {
	return l != nil && (slices.Contains(l.Roles, AnyRole) || slices.Contains(l.Roles, role))
}

// Normalize checks the limits, removes roles that are named twice, and fills in the
// defaults. An error names its field below /client.
func (l *ClientLimits) Normalize() error {
	l.MaxOpen = cmp.Or(l.MaxOpen, DefaultClientOpen)
	if err := cmp.Or(
		checkClientRoles(l.Roles),
		inRange("/client/maxOpen", &l.MaxOpen, 1, MaxClientOpen),
		inRange("/client/ratePerMinute", &l.RatePerMinute, 0, MaxClientRate),
	); err != nil {
		return err
	}
	var roles []string
	for _, role := range l.Roles {
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	l.Roles = roles
	return nil
}

func checkClientRoles(roles []string) error {
	if len(roles) == 0 || len(roles) > MaxClientRoles {
		return Invalid("/client/roles",
			fmt.Sprintf(`Name 1 to %d roles, or send ["*"] for all roles.`, MaxClientRoles),
			"a client key has 1 to %d roles, not %d", MaxClientRoles, len(roles))
	}
	if slices.Contains(roles, AnyRole) {
		if len(roles) > 1 {
			return Invalid("/client/roles", `Send ["*"] alone, or leave it out.`,
				`"*" means all roles, so it stands alone`)
		}
		return nil
	}
	for i, role := range roles {
		if err := CheckName(fmt.Sprint("/client/roles/", i), role); err != nil {
			return err
		}
	}
	return nil
}
