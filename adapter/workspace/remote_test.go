package workspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRemotesThatAreRefused(t *testing.T) {
	for _, good := range []string{
		"https://git.example/team/repo.git", "ssh://git@git.example:2222/repo", "git@git.example:team/repo",
		"git.example:repo", "git+ssh://git@git.example/repo", "file:///srv/git/repo", "/srv/git/repo.git",
	} {
		if err := CheckRemote(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"": "empty", "-oProxyCommand=x": "option", "--upload-pack=x": "option", "ext::sh -c x": "space",
		"ext::sh": "names a program", "fd::17": "names a program", "http://git.example/repo": "protocol",
		"git://git.example/repo": "protocol", "https://hunter2@git.example/repo": "credential helper",
		"https://ada:hunter2@git.example/repo": "credential helper",
		"ssh://ada:hunter2@git.example/repo":   "credential helper",
		"ssh://-oProxyCommand=hunter2/repo":    "host", "https://git.example/repo?token=hunter2": "query",
		"repo":    "not the URL",
		"../repo": "not the URL", "git@host:-x": "not the URL", "https://\x1b[2J/": "control",
		"file://host/repo": "protocol", "ada:hunter2@git.example:repo": "not the URL", "https:///repo": "host",
		"ssh://%zz": "not the URL", strings.Repeat("a", 3000) + ":x": "too long",
	} {
		err := CheckRemote(bad)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// newRemote makes a repository that both machines can push to.
func newRemote(t *testing.T) Remote {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "remote.git")
	userGit(t, ".", "init", "--quiet", "--bare", dir)
	return Remote(dir)
}

func (m machine) fetch(r Remote, atMost int64) (tip string, err error) {
	m.t.Helper()
	err = m.bare(func(ctx context.Context, b *BareRepository) error {
		tip, err = b.Fetch(ctx, r, bareTask, atMost)
		return err
	})
	return tip, err
}

func (m machine) push(r Remote, token int64) (string, error) {
	m.t.Helper()
	return m.store.PushBranch(m.t.Context(), r, bareTask, token)
}

// A run that was superseded never wins, whether its push begins after that of the next run or
// is on the way already.
func TestASupersededRunNeverWins(t *testing.T) {
	for name, onTheWay := range map[string]bool{"later": false, "on the way": true} {
		t.Run(name, func(t *testing.T) {
			one, two := newMachines(t)
			remote := newRemote(t)
			one.work("old.txt", "old\n")
			want := two.work("new.txt", "new\n")
			next := func() {
				if got, err := two.push(remote, 7); err != nil || got != want {
					t.Fatalf("pushed %q, %v", got, err)
				}
			}
			one.store.OnStep = func(point string) {
				if point == "pushing" {
					next()
				}
			}
			if !onTheWay {
				next()
			}
			if _, err := one.push(remote, 5); errors.Is(err, ErrSuperseded) == onTheWay {
				t.Errorf("the superseded push: %v", err)
			}
			one.store.OnStep = nil
			if _, err := one.push(remote, 5); !errors.Is(err, ErrSuperseded) {
				t.Errorf("a repeated push: %v", err)
			}
			if got, err := one.fetch(remote, 9); err != nil || got != want {
				t.Errorf("fetched %q, not %q: %v", got, want, err)
			}
			// a run fetches nothing of later ones
			if got, err := two.fetch(remote, 4); err == nil {
				t.Errorf("fetched %q", got)
			}
		})
	}
}

// A ref that other people made on the remote is not taken for the work of a run.
func TestStrangeRefsOfARemoteAreIgnored(t *testing.T) {
	one, two := newMachines(t)
	remote := newRemote(t)
	want := one.work("b.txt", "two\n")
	if _, err := one.push(remote, 3); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"04", "x", "4/5", "99999999999999999999", "0", "+4"} {
		ref := "refs/picket/" + bareTask + "/" + name
		if name == "4/5" {
			ref = "refs/picket/" + bareTask + "/a/5"
		}
		userGit(t, string(remote), "update-ref", ref, one.parentOnRemote(remote))
	}
	if got, err := two.fetch(remote, 1<<62); err != nil || got != want {
		t.Errorf("fetched %q, not %q: %v", got, want, err)
	}
}

// parentOnRemote is a commit of the remote that is not the tip of the branch.
func (m machine) parentOnRemote(r Remote) string {
	m.t.Helper()
	return userGit(m.t, string(r), "rev-parse", runRef(bareTask, 3)+"^")
}

// What git's own check calls an error is neither pushed nor fetched.
func TestHostileCommitsAreNotPassedOn(t *testing.T) {
	one, two := newMachines(t)
	remote := newRemote(t)
	text := "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch\n"
	tip := one.work(".gitmodules", text)
	if _, err := one.push(remote, 3); err == nil || !strings.Contains(err.Error(), "check the objects") {
		t.Errorf("it was pushed: %v", err)
	}
	userGit(t, one.dir, "push", "--quiet", string(remote), tip+":"+runRef(bareTask, 3))
	if got, err := two.fetch(remote, 9); err == nil {
		t.Errorf("fetched %q", got)
	}
}

// A host that accepts a connection and never answers ends a push within its time.
func TestARemoteThatHangsIsGivenUp(t *testing.T) {
	one, two := newMachines(t)
	one.work("b.txt", "two\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	remote := Remote("https://" + listener.Addr().String() + "/repo.git")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer cancel() // also if nobody connects
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
			<-time.After(time.Second)
		}
	}()
	_, err = one.store.PushBranch(ctx, remote, bareTask, 3)
	select {
	case conn := <-accepted:
		conn.Close()
	default:
		t.Error("nobody has connected to the remote")
	}
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("pushed: %v", err)
	}
	_ = two.bare(func(context.Context, *BareRepository) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b, err := two.store.OpenBare(ctx)
		if err == nil {
			b.Close()
			t.Error("the bare repository is not locked")
		}
		return nil
	})
}

// The user's ssh command is used, and not that of the repository; its URLs are not replaced either.
func TestOnlyTheUserConfiguresARemote(t *testing.T) {
	one, two := newMachines(t)
	dir := newRemote(t)
	other := newRemote(t)
	tip := one.work("b.txt", "two\n")
	scratch := t.TempDir()
	ssh := filepath.Join(scratch, "ssh")
	said := filepath.Join(scratch, "said")
	writeText(t, ssh, fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\nfor last; do :; done\nexec sh -c \"$last\"\n", said))
	if err := os.Chmod(ssh, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSH_COMMAND", ssh)
	mark := filepath.Join(scratch, "mark")
	program := "touch " + mark + "; false"
	remote := Remote("ssh://git@git.example" + string(dir))
	for _, kv := range [][2]string{
		{"url." + string(other) + ".insteadOf", string(remote)},
		{"url." + string(other) + ".pushInsteadOf", string(remote)},
		{"core.sshCommand", program}, {"credential.helper", "!" + program}, {"core.gitProxy", program},
		{"remote." + string(remote) + ".receivepack", program}, {"remote." + string(remote) + ".uploadpack", program},
		{"include.path", filepath.Join(scratch, "included")}, {"core.askPass", program},
	} {
		for _, m := range []machine{one, two} {
			userGit(t, m.dir, "config", kv[0], kv[1])
		}
	}
	writeText(t, filepath.Join(scratch, "included"), "[core]\n\tsshCommand = "+program+"\n")
	if got, err := one.push(remote, 3); err != nil || got != tip {
		t.Fatalf("pushed %q, %v", got, err)
	}
	if got, err := two.fetch(remote, 3); err != nil || got != tip {
		t.Errorf("fetched %q, %v", got, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the repository's configuration has run")
	}
	if log, err := os.ReadFile(said); err != nil || !strings.Contains(string(log), "git@git.example") {
		t.Errorf("ssh was called with %s, %v", log, err)
	}
	if refs := userGit(t, string(other), "for-each-ref"); refs != "" {
		t.Errorf("the other repository has %s", refs)
	}
}

// What git and the remote print may have credentials in it, and is not passed on.
func TestRemoteErrorsHoldNothingOfTheRemote(t *testing.T) {
	for _, stderr := range []string{"fatal: Authentication failed for 'https://hunter2@git.example/'",
		"remote: hunter2",
		"fatal: unable to access 'https://x:hunter2@git.example/': cannot resolve host: hunter2"} {
		e := &gitError{command: "push", stderr: stderr}
		e.exit.Code = 128
		err := remoteError("push to", "https://git.example/r", fmt.Errorf("x: %w", e))
		if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "https://git.example/r: ") {
			t.Error(err)
		}
	}
}

// Each push adds a pack, and packs are joined before there are too many.
func TestPacksAreJoined(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes many commits")
	}
	one, two := newMachines(t)
	remote := newRemote(t)
	tip := ""
	for i := range maxPacks + 5 {
		tip = one.work("b.txt", fmt.Sprint(i))
		if err := one.bare(func(ctx context.Context, b *BareRepository) error {
			_, err := b.CopyBranch(ctx, one.store.repository(), bareTask)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	_ = one.bare(func(_ context.Context, b *BareRepository) error {
		packs, err := filepath.Glob(filepath.Join(b.git(), "objects", "pack", "*.pack"))
		if err != nil || len(packs) > maxPacks {
			t.Errorf("there are %d packs, %v", len(packs), err)
		}
		return nil
	})
	if _, err := one.push(remote, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := two.fetch(remote, 3); err != nil || got != tip {
		t.Errorf("fetched %q, not %q: %v", got, tip, err)
	}
}
