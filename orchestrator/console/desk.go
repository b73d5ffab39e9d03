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
	BeginLogin(ctx context.Context, key picket.Secret,
		host, from string) (code picket.Secret, who picket.Principal, err error)
	OpenLogin(ctx context.Context, code picket.Secret, host string) (token picket.Secret, s picket.Login, err error)
	Login(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CheckLogin(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CloseLogin(ctx context.Context, token picket.Secret, host string) error
}

// frame is what every page shows around its own matter.
type frame interface {
	Stats(ctx context.Context) (picket.Stats, error)
}
