package adapter

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// shimGroup is the cgroup that a shim makes for its agent.
func shimGroup(in, run string, shim int) cgroup {
	return cgroup{filepath.Join(in, fmt.Sprintf("%s%s-%d", cgroupPrefix, filepath.Base(run), shim))}
}

// enclose makes the agent's cgroup.
func (s *shim) enclose() (*os.File, error) {
	group := shimGroup(s.job.CgroupIn, s.job.RunID, os.Getpid())
	if err := os.Mkdir(group.dir, 0o755); err != nil {
		return nil, err
	}
	inside := cgroup{filepath.Join(group.dir, "agent")}
	err := s.job.Controls.bound(group, s.job.Ceiling)
	if err == nil {
		err = s.job.Controls.divide(group)
	}
	if err == nil {
		err = os.Mkdir(inside.dir, 0o755)
	}
	dir, openErr := os.Open(inside.dir)
	if err = cmp.Or(err, openErr); err != nil {
		group.discard()
		return nil, err
	}
	s.group, s.inside = group, inside
	return dir, nil
}

// controls are those of the agent's cgroup, none without one.
func (s *shim) controls() controls {
	if s.group.dir == "" {
		return nil
	}
	return s.job.Controls
}
