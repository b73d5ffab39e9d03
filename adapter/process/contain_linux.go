package process

import (
	"errors"
	"os"

	"github.com/picket-dev/picket"
)

func probeLevels() containmentLevels {
	if err := probeSubreaper(); err != nil {
		return containmentLevels{level: picket.ContainmentGroup, why: err.Error()}
	}
	parent, found, err := probeCgroups()
	if err != nil {
		return containmentLevels{level: picket.ContainmentSubreaper, why: err.Error()}
	}
	return containmentLevels{level: picket.ContainmentCgroup, cgroupParent: parent, controls: found}
}

// probeSubreaper: the shim is found and looks at its tree through /proc.
func probeSubreaper() error {
	if _, ok := readProcStat(os.Getpid()); !ok {
		return errors.New("/proc is not mounted")
	}
	return nil
}
