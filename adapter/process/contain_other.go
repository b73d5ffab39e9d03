//go:build !linux

package process

import (
	"context"
	"errors"
	"os/exec"
	"runtime"

	"github.com/picket-dev/picket"
)

func probeLevels() containmentLevels {
	return containmentLevels{level: picket.ContainmentGroup, why: "there is nothing better on " + runtime.GOOS}
}

// plannedLevel is how this launcher holds the next tree.
func (l CommandLauncher) plannedLevel() (string, error) {
	return picket.ContainmentGroup, CheckContainment(l.Containment)
}

// launchShim is never reached: no level needs a shim here.
func (l CommandLauncher) launchShim(context.Context, Job, *exec.Cmd, string) (Process, error) {
	return nil, errors.New("there is no shim on " + runtime.GOOS)
}
