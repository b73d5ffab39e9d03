package adapter

import (
	"errors"
	"os"
	"syscall"

	"github.com/picket-dev/picket"
)

// usable makes the directory of runs and writes into it once. A worker that
// cannot keep a run would take task after task, fail each at once, and leave
// none for the workers that can.
func (cfg *Config) usable() error {
	err := os.MkdirAll(cfg.StateDir, 0o700)
	if err == nil {
		err = tryToWrite(cfg.StateDir)
	}
	if err == nil {
		return nil
	}
	remedy := "Name a directory that you may write to: XDG_STATE_HOME in the environment, or StateDir."
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		remedy = "Free some space there, or name another directory: XDG_STATE_HOME in the environment, or StateDir."
	}
	return picket.Invalid("StateDir", remedy, "runs cannot be kept in %s: %v", cfg.StateDir, err)
}

func tryToWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close())
}
