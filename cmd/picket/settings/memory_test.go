package settings

import (
	"testing"

	"github.com/picket-dev/picket/adapter/process"
)

func TestLimitsOfPrograms(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "16MiB": 16 << 20, "512MiB": 512 << 20, "4GiB": 4 << 30, "4 GiB": 4 << 30,
		"": -1, "15MiB": -1, "4": -1, "4GB": -1, "-1GiB": -1, "1.5GiB": -1, "99999999GiB": -1,
	} {
		got, err := parseMemory(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for text, ok := range map[string]bool{"0": true, "64": true, "-1": false, "many": false, "99999999": false} {
		if err := checkProcesses(text); (err == nil) != ok {
			t.Errorf("%q processes: %v", text, err)
		}
	}
	set := func(processes, exec, memory string) Settings {
		return Settings{
			"limits.processes":      {Text: processes},
			"limits.exec.processes": {Text: exec},
			"limits.exec.memory":    {Text: memory},
		}
	}
	for _, c := range []struct {
		in   Settings
		want process.Limits
	}{
		{set("8192", "2048", ""), process.Limits{Processes: 8192, ExecProcesses: 2048}},
		{set("0", "64", "0"), process.Limits{Processes: -1, ExecProcesses: 64, ExecMemory: -1}},
		{set("1", "0", "1GiB"), process.Limits{Processes: 1, ExecProcesses: -1, ExecMemory: 1 << 30}},
	} {
		if got := c.in.Limits(); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
}
