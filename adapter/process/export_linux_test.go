package process

import "github.com/picket-dev/picket"

// Counted reports whether the kernel limits processes or memory of trees that
// are held in that way.
func Counted(level, controller string) bool {
	return level == picket.ContainmentCgroup && availableLevels().controls[controller] != controllerDir{}
}
