//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// nobody is an unprivileged user and group.
const nobody = "65534"

// snoopingAgent is an agent that looks for API keys in all that /proc shows of its
// ancestors. It writes what it can read, and what it may not open.
const snoopingAgent = `p=$$; n=0
while [ "$p" -gt 1 ]; do
  for f in environ cmdline; do tr '\0' '\n' <"/proc/$p/$f" 2>/dev/null | grep -q 'pkk[_]' && echo "KEY in $f of $p: $(cat /proc/$p/comm)"; done
  if [ "$p" != "$$" ]; then
    (exec 3<"/proc/$p/mem") 2>/dev/null && echo "MEMORY of $p: $(cat /proc/$p/comm)"
    ls "/proc/$p/fd" >/dev/null 2>&1 && echo "DESCRIPTORS of $p: $(cat /proc/$p/comm)"
  fi
  p=$(awk '/^PPid/{print $2}' "/proc/$p/status"); n=$((n+1))
done
echo "looked at $n"`

// An agent that runs as the same unprivileged user as picket run finds no API key in
// its ancestors, nor in the files of its run.
func TestAnAgentFindsNoKeyOfItsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to start processes of another user")
	}
	w := newTestEnv(t)
	w.up()
	for _, dir := range []string{suiteDir, w.dir} { // the way to the program and to the run's files is open
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.chownTo(nobody, "tmp", "home", "state", "theirs")
	p := w.launch("run", exec.Command("setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups", "env",
		"PICKET_URL="+w.url, "PICKET_API_KEY="+w.key, "XDG_CONFIG_HOME="+w.path("theirs"), binary(), "run",
		"--no-notify", "--containment", picket.ContainmentSubreaper, "--", "sh", "-c", snoopingAgent))
	if code := p.wait(); code != 0 {
		t.Fatalf("picket run ended with %d:\n%s\n%s", code, p.out.text(), p.err.text())
	}
	text := p.out.text()
	if !strings.Contains(text, "looked at ") || strings.Contains(text, "looked at 1\n") {
		t.Fatalf("the agent did not look at its ancestors:\n%s\n%s", text, p.err.text())
	}
	for line := range strings.Lines(text) {
		for _, bad := range []string{"KEY in ", "MEMORY of ", "DESCRIPTORS of "} {
			if strings.HasPrefix(line, bad) {
				t.Errorf("%s", line)
			}
		}
	}
	t.Log(text)
	var list struct{ Keys []picket.APIKey }
	w.into(&list, "GET", "/keys", nil)
	for _, k := range list.Keys {
		if k.AgentID != "" {
			t.Errorf("the run key is still there after the run: %+v", k)
		}
	}
}

// chownTo gives directories of the world, which are made, to another user.
func (w *testEnv) chownTo(user string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(w.path(name), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chown(w.path(name), atoi(user), atoi(user)); err != nil {
			w.t.Fatal(err)
		}
	}
}
