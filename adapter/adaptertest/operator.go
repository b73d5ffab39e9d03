package adaptertest

import (
	"github.com/picket-dev/picket"
)

// Cancel cancels a task: its watch reports that, and every write is refused.
func (s *Server) Cancel(taskID string) {
	s.ending(taskID, picket.WatchCancelled, picket.CodeTaskCancelled,
		func(*task) picket.TaskState { return picket.TaskCancelled })
}

// Expire ends a task's lease as if its time had run out.
func (s *Server) Expire(taskID string) {
	s.ending(taskID, picket.WatchLost, picket.CodeLeaseExpired, (*task).stateAfterFailure)
}

// Adopt makes every lease one from before an adoption of the store: it has to
// be reclaimed before it holds again.
func (s *Server) Adopt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.void = l.state == picket.WatchHeld
	}
	s.notify()
}

// Complete ends a task's lease as if its agent had called mark_complete.
func (s *Server) Complete(taskID string, output picket.RawJSON) {
	s.ending(taskID, picket.WatchCompleted, picket.CodeLeaseReleased, func(t *task) picket.TaskState {
		t.view.Output = output
		return picket.TaskReview
	})
}

// Supersede ends a task's lease and grants the task to somebody else, so that
// the old token is stale. It answers the new lease.
func (s *Server) Supersede(taskID string) picket.Lease {
	s.ending(taskID, picket.WatchLost, picket.CodeStaleFence, func(*task) picket.TaskState { return picket.TaskLeased })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant(s.tasks[taskID]).record
}

func (s *Server) ending(taskID string, state picket.WatchState, code picket.Code, to func(*task) picket.TaskState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[taskID]
	if l := t.current(); l != nil {
		s.end(l, state, code, to(t))
		return
	}
	t.view.State = to(t)
	s.notify()
}

// Command sends an order, such as stop, on the watch of a task's lease.
func (s *Server) Command(taskID string, c picket.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.tasks[taskID].current(); l != nil {
		l.commands = append(l.commands, c)
	}
	s.notify()
}

// Pause stops or resumes grants: an acquire then waits and answers nothing.
func (s *Server) Pause(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
	s.notify()
}
