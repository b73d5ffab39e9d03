package orchestrator

import (
	"context"
	"sync"
)

// scriptFunc runs one script, through the gate or on one connection alone.
type scriptFunc func(ctx context.Context, script string, args ...any) (any, error)

// storeState is what identify shows of a server and a namespace on it.
type storeState struct {
	server     string
	role       string // this server process and its role
	store      string // "" when the namespace is not there
	adopted    string // the identity that the namespace was adopted on
	rawFloor   string // floor as it stands there, for the comparison of adopt
	floor      int64
	seq        int64
	granted    int64 // grants ever
	lostGrants bool  // than this process knows of
}

func (e *Engine) readStoreState(ctx context.Context, run scriptFunc) (storeState, error) {
	floor, known := e.knownGrants.last() // before the store is asked: there it can only be more
	got, err := run(ctx, "identify")
	if err != nil {
		return storeState{}, err
	}
	r := &reply{script: "identify"}
	l := r.list(got)
	s := storeState{
		server:  r.text(r.at(l, 0)),
		role:    r.text(r.at(l, 1)),
		store:   r.text(r.at(l, 2)),
		adopted: r.text(r.at(l, 3)),
	}
	s.rawFloor = r.text(r.at(l, 4))
	s.floor, s.seq, s.granted = parseInt(s.rawFloor), parseInt(r.text(r.at(l, 5))), parseInt(r.text(r.at(l, 6)))
	s.lostGrants = s.floor == floor && s.granted < known
	return s, r.err
}

// isAdopted reports whether the namespace was adopted on this very server, and has
// not forgotten since.
func (s storeState) isAdopted() bool { return s.store != "" && s.adopted == s.server && !s.lostGrants }

// grantCount is how many grants a process knows of, and under which floor. Fewer
// in the store mean that an older state was put back into a living server.
type grantCount struct {
	mu    sync.Mutex
	floor int64
	n     int64
}

func (g *grantCount) last() (floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.floor, g.n
}

func (g *grantCount) raise(floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if floor > g.floor {
		g.floor, g.n = floor, 0
	}
	if floor == g.floor {
		g.n = max(g.n, n)
	}
}
