//go:build !unix

package workspace

import "io/fs"

// identityOf is not known here: only links are refused.
func identityOf(fs.FileInfo) *dirIdentity { return nil }
