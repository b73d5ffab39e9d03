package seal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

const aTask, aRun = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV", "run_01BX5ZZKBKACTAV9WEVGEMMVRZ"

func sealer(t *testing.T, keys ...string) *Sealer {
	t.Helper()
	var raw [][]byte
	for _, k := range keys {
		raw = append(raw, []byte(strings.Repeat(k, 32)))
	}
	s, err := New(raw...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLeaseTokenOpensOnlyWithItsKey(t *testing.T) {
	s := sealer(t, "a")
	token := s.LeaseToken("default", aTask, aRun).Reveal()
	held, err := s.OpenLeaseToken(token)
	if err != nil || held.TaskID != aTask || held.RunID != aRun || held.Namespace != "default" ||
		held.Secret != s.Fingerprint("default", aRun) {
		t.Fatalf("%+v %v", held, err)
	}
	if _, err := sealer(t, "b").OpenLeaseToken(token); err == nil {
		t.Error("another key opens it")
	}
	if rotated, err := sealer(t, "b", "a").OpenLeaseToken(token); err != nil || rotated.Secret != held.Secret {
		t.Errorf("the key before does not open it: %v", err)
	}
	for i := range token {
		edited := []byte(token)
		edited[i] ^= 1
		if got, err := s.OpenLeaseToken(string(edited)); err == nil && got.RunID == aRun && got.TaskID == aTask {
			t.Errorf("edited at %d it still opens as itself", i)
		}
	}
	for _, bad := range []string{"", "pkl_", "pkl_default", token + "x", token[:len(token)-1],
		strings.Repeat("pkl_", 1000), "pkk_" + token[4:]} {
		if _, err := s.OpenLeaseToken(bad); err == nil {
			t.Errorf("%.20q opens", bad)
		}
	}
}

// The MAC covers the side of a token, and the tokens of both sides of one run open
// as the same run.
func TestTheSideOfALeaseTokenCannotBeChanged(t *testing.T) {
	s := sealer(t, "a")
	sides := []picket.LeaseSide{picket.SideBoth, picket.SideAdapter, picket.SideAgent}
	kind := map[picket.LeaseSide]string{picket.SideBoth: ".", picket.SideAdapter: ".adapter.",
		picket.SideAgent: ".agent."}
	for _, side := range sides {
		token := s.LeaseTokenFor(side, "default", aTask, aRun).Reveal()
		held, err := s.OpenLeaseToken(token)
		if err != nil || held.Side != side || held.Secret != s.Fingerprint("default", aRun) || held.TaskID != aTask {
			t.Errorf("the capability of side %q opens as %+v, %v", side, held, err)
		}
		if rotated, err := sealer(t, "b", "a").OpenLeaseToken(token); err != nil || rotated != held {
			t.Errorf("with the key before: %+v, %v", rotated, err)
		}
		head, mac := token[:strings.Index(token, aRun[4:])+26], token[strings.LastIndex(token, ".")+1:]
		for _, other := range append(sides, "operator", "Agent") {
			name, ok := kind[other]
			if !ok {
				name = "." + string(other) + "."
			}
			if _, err := s.OpenLeaseToken(head + name + mac); other != side && err == nil {
				t.Errorf("the capability of side %q opens as one of %q", side, other)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	s, err := New(bytes.Repeat([]byte("a"), 32))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.LeaseToken("default", aTask, aRun).Reveal())
	f.Add("pkl_a.b.c.d")
	f.Add(s.LeaseTokenFor(picket.SideAgent, "default", aTask, aRun).Reveal())
	f.Fuzz(func(t *testing.T, token string) {
		held, err := s.OpenLeaseToken(token)
		if err == nil && (picket.CheckID("", "task", held.TaskID) != nil ||
			picket.CheckID("", "run", held.RunID) != nil || picket.CheckNamespace("", held.Namespace) != nil) {
			t.Errorf("%q opened as %+v", token, held)
		}
	})
}
