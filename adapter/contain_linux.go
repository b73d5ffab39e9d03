package adapter

import (
	"errors"
	"os"

	"github.com/picket-dev/picket"
)

func tryLevels() levels {
	if err := trySubreaper(); err != nil {
		return levels{best: picket.ContainmentGroup, why: err.Error()}
	}
	parent, found, err := cgroupTrial()
	if err != nil {
		return levels{best: picket.ContainmentSubreaper, why: err.Error()}
	}
	return levels{best: picket.ContainmentCgroup, cgroupParent: parent, controls: found}
}

// trySubreaper: the shim is found and looks at its tree through /proc.
func trySubreaper() error {
	if _, ok := statOf(os.Getpid()); !ok {
		return errors.New("/proc is not mounted")
	}
	return nil
}
