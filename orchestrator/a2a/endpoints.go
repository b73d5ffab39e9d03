package a2a

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Endpoint is the endpoint of a pool as people see it in the console.
type Endpoint struct {
	Role        string
	Name        string
	Description string
	URL         string // without a slash at its end; /a2a and the path of the card follow
	Skills      []EndpointSkill
	MaxQueue    int          // tasks that may wait for the pool
	Reviewed    bool         // people review results before clients see them
	Budget      budget.Money // what one task of a client may cost
}

// EndpointSkill is a skill on the card of a pool.
type EndpointSkill struct {
	ID          string
	Name        string
	Description string
}

// Endpoints returns the URL of the endpoint of the orchestrator in a namespace, without a slash at its end, and the
// endpoints of the pools in the order of Config.Pools. Their skills are those of their cards.
func (s *Server) Endpoints(ctx context.Context, namespace string) (orchestrator string, pools []Endpoint, err error) {
	orchestrator = (&exchange{server: s, namespace: namespace}).base()
	for i := range s.cfg.Pools {
		x := &exchange{server: s, namespace: namespace, engine: s.cfg.Engine(namespace), pool: &s.cfg.Pools[i]}
		text := x.cardText()
		e := Endpoint{Role: x.pool.Role, Name: text.Name, Description: text.Description, URL: x.base(),
			MaxQueue: x.pool.MaxQueue, Reviewed: x.pool.Task.Review != picket.ReviewByNone}
		if given := x.pool.Task.BudgetEnvelope; given != nil {
			e.Budget = given.USD
		}
		skills, err := x.skills(ctx)
		if err != nil {
			return "", nil, err
		}
		for _, skill := range skills {
			e.Skills = append(e.Skills, EndpointSkill{skill.ID, skill.Name, skill.Description})
		}
		pools = append(pools, e)
	}
	return orchestrator, pools, nil
}
