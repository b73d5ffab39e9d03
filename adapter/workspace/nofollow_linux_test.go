package workspace

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory is opened below another one, and no link on the way is followed,
// with the kernel's own rule and without it.
func TestNoLinkIsFollowedBeneath(t *testing.T) {
	top := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(top, "root", "real"), 0o700), os.Mkdir(filepath.Join(top, "outside"), 0o700),
		os.Symlink(filepath.Join(top, "outside"), filepath.Join(top, "root", "away")),
		os.Symlink("real", filepath.Join(top, "root", "near")),
		os.Symlink("root", filepath.Join(top, "link")), os.WriteFile(filepath.Join(top, "root", "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for how, open := range map[string]func(root, below string) (*os.File, error){
		"openat2":    openNoFollow,
		"one by one": openNoFollowByStep,
	} {
		for _, c := range []struct {
			root  string
			below string
			opens bool
		}{
			{"root", "real", true}, {"root", "away", false}, {"root", "near", false}, {"link", "real", false},
			{"root", "file", false}, {"root", "none", false}, {"root", ".", true},
		} {
			f, err := open(filepath.Join(top, c.root), c.below)
			if (err == nil) != c.opens {
				t.Errorf("%s: %s below %s: %v", how, c.below, c.root, err)
			}
			if err == nil {
				f.Close()
			}
		}
	}
	for _, below := range []string{"..", "../outside", "/etc", "real/../../outside"} {
		if f, err := openNoFollow(filepath.Join(top, "root"), below); err == nil {
			f.Close()
			t.Errorf("%s was opened", below)
		}
	}
}

// A workspace is swapped with a link and with another directory while it is
// deleted. The other directory keeps all that it holds, wherever it is.
func TestADeletionThatIsSwappedMeanwhile(t *testing.T) {
	deleted := 0
	for i := range 200 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		const name = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
		root, target, link := filepath.Join(dir, "root"), filepath.Join(dir, "target"), filepath.Join(dir, "link")
		k := &Locked{
			recordDir:     dir,
			root:          root,
			KeptWorkspace: KeptWorkspace{Name: name, Path: filepath.Join(root, name)},
		}
		for _, err := range []error{
			os.MkdirAll(filepath.Join(target, "deep"), 0o700),
			os.WriteFile(filepath.Join(target, "deep", "private"), nil, 0o600),
			os.Symlink(target, link), k.createDir(), os.MkdirAll(filepath.Join(k.Path, "a", "b"), 0o700),
			os.Mkdir(filepath.Join(k.Path, "c"), 0o700),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		private, err := os.OpenRoot(target)
		if err != nil {
			t.Fatal(err)
		}
		quit, began := make(chan struct{}), make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for first := true; ; first = false {
				for _, other := range []string{link, link, target, target} { // there and back
					// it may be deleted by now
					_ = unix.Renameat2(unix.AT_FDCWD, k.Path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
				}
				if first {
					close(began)
				}
				select {
				case <-quit:
					return
				default:
				}
			}
		})
		<-began
		if k.removeDir() == nil {
			deleted++
		}
		close(quit)
		group.Wait()
		k.closeDir()
		if _, err := private.Stat("deep/private"); err != nil {
			t.Errorf("in round %d the other directory has lost its file: %v", i, err)
		}
		private.Close()
	}
	t.Logf("%d of 200 were deleted all the same", deleted)
}
