package settings

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/devredis"
)

// Limits are what agents and their programs may take of the machine; to the
// library, zero is "default".
func (s Settings) Limits() process.Limits {
	count := func(key string) int {
		n, _ := strconv.Atoi(s.Text(key))
		return cmp.Or(n, -1)
	}
	l := process.Limits{Processes: count("limits.processes"), ExecProcesses: count("limits.exec.processes")}
	if text := s.Text("limits.exec.memory"); text != "" {
		l.ExecMemory, _ = parseMemory(text)
		l.ExecMemory = cmp.Or(l.ExecMemory, -1)
	}
	return l
}

// StoreMemory is how many bytes the store of `picket up` may use; 0: any number.
func (s Settings) StoreMemory() int64 {
	if text := s.Text("store.max_memory"); text != "" {
		n, _ := parseMemory(text)
		return n
	}
	return devredis.DefaultMemory()
}

func checkStoreMemory(text string) error {
	if n, err := parseMemory(text); err != nil || n > 0 && n < 96<<20 {
		return fmt.Errorf("%q is not an amount of memory such as 512MiB or 4GiB, at least 96MiB, or 0 for any", text)
	}
	return nil
}

const maxProcesses = 1 << 22 // more processes than a Linux machine can have

func checkProcesses(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n < 0 || n > maxProcesses {
		return fmt.Errorf("%q is not a number of processes, 0 to %d", text, maxProcesses)
	}
	return nil
}

func checkMemory(text string) error {
	_, err := parseMemory(text)
	return err
}

// parseMemory reads 0, or a size such as 512MiB, in bytes.
func parseMemory(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	for unit, size := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		number, ok := strings.CutSuffix(text, unit)
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); ok && err == nil && n > 0 && n < 1<<20 &&
			n*size >= 16<<20 {
			return n * size, nil
		}
	}
	return 0, fmt.Errorf("%q is not an amount of memory such as 512MiB or 4GiB, at least 16MiB, or 0 for any", text)
}
