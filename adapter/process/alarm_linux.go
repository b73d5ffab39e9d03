package process

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm goes off at a time of the boot clock, at once when that has passed
// while the machine was suspended.
type alarm struct {
	timer *os.File
	rings chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{timer: os.NewFile(uintptr(fd), "alarm"), rings: make(chan struct{}, 1)}
	go func() {
		var count [8]byte
		for {
			if _, err := a.timer.Read(count[:]); err != nil {
				return
			}
			select {
			case a.rings <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// set replaces the time; 0 is never. An earlier one may ring all the same, if
// it was just ringing.
func (a *alarm) set(at time.Duration) error {
	conn, err := a.timer.SyscallConn()
	if err != nil {
		return err
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at, 0)))}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil))
	})
	if err != nil {
		return err
	}
	return failed
}
