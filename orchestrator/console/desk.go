package console

import (
	"context"

	"github.com/picket-dev/picket"
)

// Desk is what the console asks of the engine of a namespace. Each page
// declares its own few methods beside its handlers; *orchestrator.Engine has
// them all.
type Desk interface {
	sessions
	frame
	handoffReads
	handoffActs
	reviewReads
	reviewActs
	taskLists
	taskMaker
	taskReads
	taskActs
	registry
	leaseList
	books
	eventLog
	switches
}

// sessions is what logging in needs.
type sessions interface {
	Authenticate(ctx context.Context, key picket.Secret) (picket.Principal, error)
	OpenSession(ctx context.Context, key picket.Secret, from string) (token picket.Secret, s picket.Session, err error)
	Session(ctx context.Context, token picket.Secret) (picket.Session, error)
	SessionHolds(ctx context.Context, token picket.Secret) (picket.Session, error)
	CloseSession(ctx context.Context, token picket.Secret) error
}

// frame is what every page shows around its own matter.
type frame interface {
	Stats(ctx context.Context) (picket.Stats, error)
}
