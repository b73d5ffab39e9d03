package console

import (
	"context"

	"github.com/picket-dev/picket"
)

// Backend is what the console asks of the engine of a namespace. Each page
// declares its own few methods beside its handlers; *orchestrator.Engine has
// them all.
type Backend interface {
	authenticator
	statsReader
	handoffReader
	handoffDecider
	reviewReader
	reviewDecider
	taskLister
	taskSubmitter
	taskReader
	taskOperator
	agentRegistry
	leaseLister
	ledgerReader
	eventReader
	pauser
}

// authenticator is what logging in needs.
type authenticator interface {
	Authenticate(ctx context.Context, key picket.Secret) (picket.Principal, error)
	BeginLogin(ctx context.Context, key picket.Secret,
		host, from string) (code picket.Secret, who picket.Principal, err error)
	OpenLogin(ctx context.Context, code picket.Secret, host string) (token picket.Secret, s picket.Login, err error)
	Login(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CheckLogin(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CloseLogin(ctx context.Context, token picket.Secret, host string) error
}

// statsReader is what every page shows around its own matter.
type statsReader interface {
	Stats(ctx context.Context) (picket.Stats, error)
}
