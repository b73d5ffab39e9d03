package main

import (
	"io"
	"os"
	"testing"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

func TestMain(m *testing.M) {
	asHost()
	os.Exit(cleanup.WithTempDir(m, "pk-bench-").Run())
}

// Every scenario that is quick at a small size runs, gives figures for both
// sides and leaves nothing behind. What the figures are is not looked at.
func TestScenariosRun(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	names := "life,life5,life-http,steady,fence,renew,busy,kill,launch,agents,console,a2a,scripts"
	if os.Getenv("PICKET_SOAK") != "" {
		names += ",hostdeath" // which waits for silence and for leases to run out
	}
	chosen, err := choose(names)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range chosen {
		t.Run(s.name, func(t *testing.T) {
			b := &bench{
				plan:   plan{Rounds: 1, Tasks: 128, Workers: 8, Payload: 64, Quick: true},
				fsyncs: []string{"off"},
				log:    io.Discard,
			}
			if err := s.run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if len(b.lines) == 0 {
				t.Error("no figures")
			}
			for _, l := range b.lines {
				checkFigures(t, s.name, l)
			}
		})
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func checkFigures(t *testing.T, name string, l line) {
	if l.Scenario != name || l.Unit == "" || l.Machine.Redis == "" || l.Machine.Go == "" {
		t.Errorf("%s, %s: what it says of itself is not complete: %+v", l.Scenario, l.Case, l)
	}
	if len(l.Profile) > 0 {
		return
	}
	if len(l.Sides) != 2 || l.Ratio <= 0 {
		t.Fatalf("%s, %s: %d sides, ratio %v", l.Scenario, l.Case, len(l.Sides), l.Ratio)
	}
	for _, s := range l.Sides {
		if len(s.Rounds) != 1 || s.Median <= 0 {
			t.Errorf("%s, %s, %s: %+v", l.Scenario, l.Case, s.Name, s)
		}
	}
}
