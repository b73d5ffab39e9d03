package settings

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/devredis"
)

// Memory is an amount of memory in bytes. 0 means any amount.
type Memory int64

// UnmarshalText reads 0, or a size such as 512MiB.
func (m *Memory) UnmarshalText(text []byte) error {
	n, err := parseMemory(string(text))
	*m = Memory(n)
	return err
}

// String returns the amount as it is written in picket.yaml.
func (m Memory) String() string {
	switch {
	case m == 0:
		return "0"
	case m%(1<<30) == 0:
		return strconv.FormatInt(int64(m)>>30, 10) + "GiB"
	}
	return strconv.FormatInt(int64(m)>>20, 10) + "MiB"
}

// ProcessLimits are what agents and their programs may take of the machine. In them zero
// means the default, and a negative number means any amount.
func (s Settings) ProcessLimits() process.Limits {
	l := process.Limits{
		Processes:     cmp.Or(s.Limits.Processes, -1),
		ExecProcesses: cmp.Or(s.Limits.Exec.Processes, -1),
	}
	if m := s.Limits.Exec.Memory; m != nil {
		l.ExecMemory = cmp.Or(int64(*m), -1)
	}
	return l
}

// StoreMemory is how many bytes the store of `picket up` may use; 0: any number.
func (s Settings) StoreMemory() int64 {
	if m := s.Store.MaxMemory; m != nil {
		return int64(*m)
	}
	return devredis.DefaultMemory()
}

func checkStoreMemory(text string) error {
	if n, err := parseMemory(text); err != nil || n > 0 && n < 96<<20 {
		return fmt.Errorf("%q is not an amount of memory such as 512MiB or 4GiB, at least 96MiB, or 0 for any", text)
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
