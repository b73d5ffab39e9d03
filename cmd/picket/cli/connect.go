package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/unixsocket"
)

const defaultURL = "http://127.0.0.1:7070"

// Connection is the control plane a command talks to.
type Connection struct {
	*client.Client
	KeySource string // where the key comes from
	reads     *readCache
}

// NewConnection makes a connection to a server.
func NewConnection(url string, key picket.Secret) *Connection {
	s := &Connection{reads: &readCache{}}
	http := *client.DefaultHTTP
	s.reads.next, http.Transport = http.Transport, s.reads
	s.Client = client.New(url, key, client.Options{HTTP: &http, OnError: s.WithRemedy})
	return s
}

// Connect finds URL and key: flag or PICKET_URL and PICKET_API_KEY, else the
// profile. The profile's key is only ever sent to the profile's server.
func Connect(cmd *cobra.Command) (*Connection, error) {
	return ConnectWith(cmd, picket.Secret(os.Getenv("PICKET_API_KEY")), "PICKET_API_KEY")
}

// ConnectWith is connect with a key that comes from source. If the key is empty,
// that of the profile is used.
func ConnectWith(cmd *cobra.Command, key picket.Secret, source string) (*Connection, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return nil, err
	}
	saved, err := loadProfile()
	if err != nil {
		return nil, err
	}
	if origin, local := cfg.Origin("url"); local && os.Getenv("PICKET_API_KEY") != "" {
		return nil, keyToLocalURL("PICKET_API_KEY", origin)
	}
	url := serverURL(cfg, saved)
	if key == "" && saved.URL == url && saved.KeyFile != "" {
		if err := refuseSavedKeyInRun(); err != nil {
			return nil, err
		}
		source = saved.KeyFile
		if key, err = ReadSecret(saved.KeyFile); err != nil {
			return nil, picket.Refuse(exit.CodeUsage, "Set PICKET_API_KEY, or start `picket up` again.",
				"the key of %s cannot be read: %v", saved.URL, err)
		}
	}
	s := NewConnection(url, key)
	s.KeySource = source
	return s, nil
}

// keyToLocalURL refuses to send a key to a URL that the file of a directory sets.
func keyToLocalURL(source, origin string) error {
	return picket.Refuse(exit.CodeUsage, "Set PICKET_URL or --url to the server that the key belongs to.",
		"%s is not sent to the url in %s, because that file is in the current directory", source, origin)
}

// ServerURL is the URL of the server that [Connect] would talk to, without a slash at its end.
func ServerURL(cmd *cobra.Command) (string, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return "", err
	}
	saved, err := loadProfile()
	return serverURL(cfg, saved), err
}

// ConnectFrom is [ConnectWith] with a key of the environment variable source. It is not sent to a URL
// that the file of the current directory sets.
func ConnectFrom(cmd *cobra.Command, key picket.Secret, source string) (*Connection, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return nil, err
	}
	if origin, local := cfg.Origin("url"); local {
		return nil, keyToLocalURL(source, origin)
	}
	return ConnectWith(cmd, key, source)
}

func serverURL(cfg settings.Settings, saved Profile) string {
	return cmp.Or(comparableURL(cfg.URL), saved.URL, defaultURL)
}

// comparableURL is a checked URL as profiles have it: without a slash at its end, and with the
// absolute path of a Unix socket.
func comparableURL(url string) string {
	if path, err := unixsocket.Path(url); err == nil {
		return unixsocket.URL(path)
	}
	return strings.TrimRight(url, "/")
}

// refuseSavedKeyInRun keeps an agent in a run or a session from deciding about its own work with the key of
// the person it runs for. It is a guard against accidents and obedient models,
// not against a process of the same user, which can read the key on its own.
func refuseSavedKeyInRun() error {
	inside := os.Getenv("PICKET_SESSION_ID")
	if run := os.Getenv("PICKET_RUN_ID"); run != "" && os.Getenv("PICKET_LEASE_TOKEN") != "" {
		inside = run
	}
	if inside == "" {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden,
		"Use `picket tool`, which speaks for the agent. For more, set PICKET_API_KEY to a key made for agents: picket key create NAME --scope agent",
		"this is inside %s, and the saved key belongs to the person it works for", term.OneLine(inside))
}

// Sleep waits for d or the end of ctx, whose cause it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// WithRemedy adds what this command line can do about a server that is not there or
// does not know the key.
func (s *Connection) WithRemedy(err error) error {
	var e *picket.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == picket.CodeUnavailable && errors.Is(err, picket.ErrUnknown):
		if e.Facts["tls"] == nil { // else it says what is wrong
			e.Remedy = "Start it with `picket up`, or set PICKET_URL to where it runs."
		}
	case e.Code == picket.CodeUnauthenticated && s.Key() == "":
		e.Remedy = "Set PICKET_API_KEY: there is no saved key for " + s.URL() + "."
	case e.Code == picket.CodeUnauthenticated && s.KeySource == "PICKET_API_KEY":
		e.Remedy = "PICKET_API_KEY holds a key that " + s.URL() +
			" does not know: set it to one it knows, or unset it to use the saved one."
	case e.Code == picket.CodeUnauthenticated:
		e.Remedy = "The key in " + s.KeySource +
			" is not known there. Start `picket up` again, which registers it; or set PICKET_API_KEY."
	}
	return err
}

// Environment is how a child process is told the same server and key.
func (s *Connection) Environment() []string {
	return []string{"PICKET_URL=" + s.URL(), "PICKET_API_KEY=" + s.Key().Reveal()}
}
