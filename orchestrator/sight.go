package orchestrator

import (
	"context"
	"sync"
)

// runner runs one script, through the gate or on one connection alone.
type runner func(ctx context.Context, script string, args ...any) (any, error)

// sight is what identify shows of a server and a namespace on it.
type sight struct {
	here    string
	role    string // this server process and its role
	store   string // "" when the namespace is not there
	adopted string // the identity that the namespace was adopted on
	raw     string // floor as it stands there, for the comparison of adopt
	floor   int64
	seq     int64
	granted int64 // grants ever
	fewer   bool  // than this process knows of
}

func (e *Engine) look(ctx context.Context, run runner) (sight, error) {
	floor, known := e.granted.last() // before the store is asked: there it can only be more
	got, err := run(ctx, "identify")
	if err != nil {
		return sight{}, err
	}
	r := &reply{script: "identify"}
	l := r.list(got)
	s := sight{
		here:    r.text(r.at(l, 0)),
		role:    r.text(r.at(l, 1)),
		store:   r.text(r.at(l, 2)),
		adopted: r.text(r.at(l, 3)),
	}
	s.raw = r.text(r.at(l, 4))
	s.floor, s.seq, s.granted = integer(s.raw), integer(r.text(r.at(l, 5))), integer(r.text(r.at(l, 6)))
	s.fewer = s.floor == floor && s.granted < known
	return s, r.bad
}

// known reports whether the namespace was adopted on this very server, and has
// not forgotten since.
func (s sight) known() bool { return s.store != "" && s.adopted == s.here && !s.fewer }

// grants is how many grants a process knows of, and under which floor. Fewer
// in the store mean that an older state was put back into a living server.
type grants struct {
	mu    sync.Mutex
	floor int64
	n     int64
}

func (g *grants) last() (floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.floor, g.n
}

func (g *grants) raise(floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if floor > g.floor {
		g.floor, g.n = floor, 0
	}
	if floor == g.floor {
		g.n = max(g.n, n)
	}
}
