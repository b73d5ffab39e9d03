package cli

import (
	"bytes"
	"sync"

	"github.com/spf13/cobra"
)

// newTestRoot is the root command with the verbs of this package.
func newTestRoot() *cobra.Command {
	root := &cobra.Command{Use: "picket"}
	root.PersistentFlags().String("config", "", "")
	root.PersistentFlags().String("url", "", "")
	root.AddCommand(NewTask(), NewAgent(), NewBudget(), NewEvents(), NewReview(), NewHandoff())
	return root
}

// lockedBuffer can be read while others write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *lockedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *lockedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
