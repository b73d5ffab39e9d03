package seal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// A token that was opened before opens as the first time. It does not open at a Sealer without the key that made it,
// and an edited copy of it does not open, as if nothing was kept.
func TestKeptTokensOpenAsTheFirstTime(t *testing.T) {
	before, rotated, after := sealer(t, "a"), sealer(t, "b", "a"), sealer(t, "b")
	for _, side := range []picket.LeaseSide{picket.SideBoth, picket.SideAdapter, picket.SideAgent} {
		token := before.LeaseTokenFor(side, "default", aTask, aRun).Reveal()
		first, err := before.OpenLeaseToken(token)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Sealer{before, before, rotated, rotated} {
			if again, err := s.OpenLeaseToken(token); err != nil || again != first {
				t.Errorf("side %q opens again as %+v, %v, and before as %+v", side, again, err, first)
			}
		}
		for range 2 {
			held, err := after.OpenLeaseToken(token)
			if !errors.Is(err, ErrInvalidToken) || held != (picket.LeaseCredential{}) {
				t.Errorf("without its key it opens as %+v, %v", held, err)
			}
		}
		for i := range token {
			edited := token[:i] + string(token[i]^1) + token[i+1:]
			held, err := before.openNewLeaseToken(edited)
			for range 2 {
				if got, gotErr := before.OpenLeaseToken(edited); got != held || !errors.Is(gotErr, err) {
					t.Errorf("%q opens as %+v, %v, and without what is kept as %+v, %v", edited, got, gotErr, held, err)
				}
			}
		}
	}
}

// A caller that changes the credential it was given changes nobody else's.
func TestKeptCredentialsAreCopies(t *testing.T) {
	s := sealer(t, "a")
	token := s.LeaseToken("default", aTask, aRun).Reveal()
	held, err := s.OpenLeaseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	held.Fence, held.TaskID = 7, "other"
	if again, err := s.OpenLeaseToken(token); err != nil || again.Fence != 0 || again.TaskID != aTask {
		t.Errorf("%+v, %v", again, err)
	}
}

// Nothing that is kept contains a token or its MAC, and nothing is kept of what does not open.
func TestNoTokenIsKept(t *testing.T) {
	s := sealer(t, "a")
	token := s.LeaseToken("default", aTask, aRun).Reveal()
	for _, bad := range []string{"", "pkl_", token + "x", token[:len(token)-1] + "_", strings.Repeat("x", maxToken+1)} {
		if _, err := s.OpenLeaseToken(bad); err == nil {
			t.Errorf("%q opens", bad)
		}
	}
	if n := len(s.opened.young) + len(s.opened.old); n != 0 {
		t.Errorf("%d tokens that do not open are kept", n)
	}
	if _, err := s.OpenLeaseToken(token); err != nil || len(s.opened.young) != 1 {
		t.Fatalf("%d tokens are kept, %v", len(s.opened.young), err)
	}
	kept := fmt.Sprintf("%+v", s.opened.young)
	for _, held := range s.opened.young {
		kept += string(held.Secret)
	}
	if strings.Contains(kept, token) || strings.Contains(kept, token[strings.LastIndex(token, ".")+1:]) {
		t.Error("the token is kept")
	}
}

// However many tokens are opened at once, a bounded number of them is kept, and one that is always used again stays.
func TestKeptTokensAreBounded(t *testing.T) {
	s := sealer(t, "a")
	used := s.LeaseToken("default", aTask, aRun).Reveal()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range maxOpened {
				run := "run_" + ulid.ULID{0: byte(worker), 14: byte(i >> 8), 15: byte(i)}.String()
				held, err := s.OpenLeaseToken(s.LeaseToken("default", aTask, run).Reveal())
				if err != nil || held.RunID != run {
					t.Errorf("%s opens as %+v, %v", run, held, err)
					return
				}
				if held, err := s.OpenLeaseToken(used); err != nil || held.RunID != aRun {
					t.Errorf("%+v, %v", held, err)
					return
				}
			}
		})
	}
	group.Wait()
	if young, old := len(s.opened.young), len(s.opened.old); young > maxOpened || old > maxOpened || young == 0 {
		t.Errorf("%d and %d tokens are kept", young, old)
	}
	if _, ok := s.opened.find(hashToken(used)); !ok {
		t.Error("a token that was always used again was forgotten")
	}
	first := s.LeaseToken("default", aTask, "run_"+ulid.ULID{}.String()).Reveal()
	if _, ok := s.opened.find(hashToken(first)); ok {
		t.Error("a token that was used once is still kept after many others")
	}
}
