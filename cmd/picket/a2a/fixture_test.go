package a2a

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/rig/cleanup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-a2acli-")) }

// result is what a command has printed, and its exit code.
type result struct {
	stdout, stderr string
	code           int
}

// run runs `picket a2a` with arguments. Errors are printed as the program prints them.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runRoot(t, append([]string{"a2a"}, args...)...)
}

func runRoot(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "picket", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("config", "", "")
	root.PersistentFlags().String("url", "", "")
	root.AddCommand(New(), cli.NewConfig(func(string, string) error { return nil }))
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		cli.PrintError(&stderr, root, err)
	}
	return result{stdout.String(), stderr.String(), exit.Code(err)}
}

func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("%q is not in\n%s%s", text, r.stdout, r.stderr)
		}
	}
}

// atHome gives the commands a configuration of their own: the server that they use, and the saved key for it.
func atHome(t *testing.T, server, key string) {
	t.Helper()
	home := t.TempDir()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("PICKET_URL", "")
	t.Setenv("PICKET_API_KEY", "")
	keyFile := filepath.Join(home, "picket", "key")
	for path, text := range map[string]string{
		keyFile: key + "\n",
		filepath.Join(home, "picket", "profile.json"): fmt.Sprintf(`{"url":%q,"keyFile":%q}`, server, keyFile),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
