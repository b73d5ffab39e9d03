package attach

import "github.com/spf13/cobra"

// newAttachTestRoot is a command with the flags of the root command.
func newAttachTestRoot() *cobra.Command {
	root := &cobra.Command{Use: "picket"}
	root.PersistentFlags().String("config", "", "")
	root.PersistentFlags().String("url", "", "")
	return root
}
