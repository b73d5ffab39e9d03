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
		if err := check("processes", text); (err == nil) != ok {
			t.Errorf("%q processes: %v", text, err)
		}
	}
	for _, c := range []struct {
		yaml string
		want process.Limits
	}{
		{"", process.Limits{Processes: 8192, ExecProcesses: 2048}},
		{"{processes: 0, exec: {processes: 64, memory: 0}}",
			process.Limits{Processes: -1, ExecProcesses: 64, ExecMemory: -1}},
		{"{processes: 1, exec: {processes: 0, memory: 1GiB}}",
			process.Limits{Processes: 1, ExecProcesses: -1, ExecMemory: 1 << 30}},
	} {
		got, err := loadFile(t, "limits: "+c.yaml)
		if err != nil || got.ProcessLimits() != c.want {
			t.Errorf("%s: %v %+v, want %+v", c.yaml, err, got.ProcessLimits(), c.want)
		}
	}
}
