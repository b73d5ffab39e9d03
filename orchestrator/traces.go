package orchestrator

import "context"

// TracePosition returns the sequence number of the event up to which traces were exported.
func (e *Engine) TracePosition(ctx context.Context) (int64, error) {
	at, _, err := e.advanceTraces(ctx, "", 0)
	return at, err
}

// AdvanceTraces moves the position of [Engine.TracePosition] on. moved is false if another process
// has moved it before, so that each event is exported by one process.
func (e *Engine) AdvanceTraces(ctx context.Context, from, to int64) (moved bool, err error) {
	_, moved, err = e.advanceTraces(ctx, from, to)
	return moved, err
}

func (e *Engine) advanceTraces(ctx context.Context, from any, to int64) (at int64, moved bool, err error) {
	r := e.run(ctx, "trace_advance", from, to)
	var v struct {
		Position int64 `reply:"position"`
		Moved    bool  `reply:"moved"`
	}
	r.Decode(&v)
	return v.Position, v.Moved, r.Err
}
