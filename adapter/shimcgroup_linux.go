package adapter

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// shimCgroup is the cgroup that a shim makes for its agent.
func shimCgroup(in, run string, shim int) cgroup {
	return cgroup{filepath.Join(in, fmt.Sprintf("%s%s-%d", cgroupPrefix, filepath.Base(run), shim))}
}

// createCgroup makes the agent's cgroup.
func (s *shim) createCgroup() (*os.File, error) {
	group := shimCgroup(s.job.CgroupIn, s.job.RunID, os.Getpid())
	if err := os.Mkdir(group.dir, 0o755); err != nil {
		return nil, err
	}
	inside := cgroup{filepath.Join(group.dir, "agent")}
	err := s.job.Controls.setLimits(group, s.job.Ceiling)
	if err == nil {
		err = s.job.Controls.delegateBelow(group)
	}
	if err == nil {
		err = os.Mkdir(inside.dir, 0o755)
	}
	dir, openErr := os.Open(inside.dir)
	if err = cmp.Or(err, openErr); err != nil {
		group.removeSoon()
		return nil, err
	}
	s.group, s.agentGroup = group, inside
	return dir, nil
}

// cgroupControllers are those of the agent's cgroup, none without one.
func (s *shim) cgroupControllers() controllerDirs {
	if s.group.dir == "" {
		return nil
	}
	return s.job.Controls
}
