package api

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
)

// listPools shows every role that has agents, and to operators those that the
// workflow file names and that have none yet.
func (a *API) listPools(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	owner := r.visibleOwner()
	pools, err := r.engine.Pools(r.ctx(), "", owner)
	if err != nil {
		return err
	}
	missing := a.addAdvice(pools)
	if owner == "" {
		for _, role := range missing {
			pools = append(pools, a.emptyPool(role))
		}
		slices.SortFunc(pools, func(x, y picket.Pool) int { return cmp.Compare(x.RoleID, y.RoleID) })
	}
	return r.respond(picket.PoolList{Pools: pools}, nil)
}

func (a *API) getPool(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	role, owner := r.Param("role"), r.visibleOwner()
	if err := picket.CheckName("role", role); err != nil {
		return err
	}
	pools, err := r.engine.Pools(r.ctx(), role, owner)
	if err != nil {
		return err
	}
	missing := a.addAdvice(pools)
	switch {
	case len(pools) > 0:
		return r.respond(pools[0], nil)
	case owner != "":
		return poolForbidden(role)
	case slices.Contains(missing, role):
		return r.respond(a.emptyPool(role), nil)
	}
	return picket.Refuse(picket.CodeNotFound, "Look at GET /api/v1/pools.",
		"no agent has the role %s, and picket.yaml does not name it", role)
}

// addAdvice adds what the workflow file says to the pools it names, and returns
// the roles it names that are not among them.
func (a *API) addAdvice(pools []picket.Pool) (missing []string) {
	for role := range a.cfg.PoolAdvice {
		i := slices.IndexFunc(pools, func(p picket.Pool) bool { return p.RoleID == role })
		if i < 0 {
			missing = append(missing, role)
			continue
		}
		pools[i].Advisory = a.advice(role)
	}
	return missing
}

func (a *API) advice(role string) *picket.PoolAdvice {
	advice := a.cfg.PoolAdvice[role]
	return &advice
}

func (a *API) emptyPool(role string) picket.Pool {
	members := map[picket.AgentStatus]int{}
	for _, status := range picket.AgentStatuses {
		members[status] = 0
	}
	return picket.Pool{RoleID: role, Members: members, Advisory: a.advice(role)}
}

// seesPool reports whether the caller may see who is in a pool: an operator
// may, and a key that has registered an agent of the role.
func (r request) seesPool(role string) (bool, error) {
	owner := r.visibleOwner()
	if owner == "" || role == "" {
		return owner == "", nil
	}
	pools, err := r.engine.Pools(r.ctx(), role, owner)
	return len(pools) > 0, err
}

// poolForbidden is the same for a pool of others and for one that does not exist.
func poolForbidden(role string) error {
	return picket.Refuse(picket.CodeForbidden,
		"Ask for a role in which this key has registered an agent, or use an operator's key.",
		"this key has no agent in the pool %s", role)
}
