package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
)

const maxTicket = 16 << 10 // bytes

// readTicket reads a ticket of this user. Other users can write to the directory, so a
// file that somebody else may have made or kept is not believed.
func readTicket(name string) (stopTicket, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return stopTicket{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return stopTicket{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return stopTicket{}, fmt.Errorf("%s is not a ticket of this user", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTicket))
	if err != nil {
		return stopTicket{}, err
	}
	var t stopTicket
	return t, json.Unmarshal(text, &t)
}

// bootTime is when the machine started, in seconds by its clock. It changes if the clock
// is set, as on a virtual machine that was put back together with its memory.
func bootTime() (int64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if seconds, ok := strings.CutPrefix(line, "btime "); ok {
			return strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
		}
	}
	return 0, errors.New("the system does not tell when it started")
}
