package adaptertest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// execPath is where results of programs are handed in.
const execPath = "/v1/run/exec/"

// pendingExec is a program that an adapter is asked to run.
type pendingExec struct {
	request  picket.ExecRequest
	deadline time.Time
}

// Exec asks the adapter of a task's current run for a program. As the tool proxy does, it sends the
// order with the watch, unless the adapter lists it as known, and with every renewal, until there
// is a result or order.TTLMs have passed.
func (s *Server) Exec(taskID string, order picket.ExecRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.tasks[taskID].current(); l != nil {
		l.execs = append(l.execs, pendingExec{order, s.now().Add(time.Duration(order.TTLMs) * time.Millisecond)})
	}
	s.notify()
}

// execCommands are the programs to tell an adapter of that knows some of them.
func (s *Server) execCommands(l *lease, known string) (commands []picket.Command) {
	for _, o := range l.execs {
		if left := o.deadline.Sub(s.now()); left > 0 && !slices.Contains(strings.Split(known, ","), o.request.CallID) {
			order := o.request
			order.TTLMs = left.Milliseconds()
			commands = append(commands, picket.Command{Command: "exec", Exec: &order})
		}
	}
	return commands
}

// execResult takes the first result of a call that somebody waits for.
func execResult(s *Server, l *lease, r *http.Request, body []byte) (any, error) {
	in, err := decode[picket.ExecResult](body)
	if err != nil {
		return nil, err
	}
	id := strings.TrimPrefix(r.URL.Path, execPath)
	l.run.ExecPosts++
	if _, again := l.run.Execs[id]; again {
		return struct{}{}, nil
	}
	i := slices.IndexFunc(l.execs, func(o pendingExec) bool { return o.request.CallID == id })
	if i < 0 || !s.now().Before(l.execs[i].deadline) {
		return nil, picket.Refuse(picket.CodeStateConflict, "Drop it.", "no call waits for the result of %s", id)
	}
	l.execs = slices.Delete(l.execs, i, i+1)
	if l.run.Execs == nil {
		l.run.Execs = map[string]picket.ExecResult{}
	}
	l.run.Execs[id] = in
	s.notify()
	return struct{}{}, nil
}
