//go:build !unix

package adapter

import "io/fs"

// identityOf is not known here: only links are refused.
func identityOf(fs.FileInfo) *dirIdentity { return nil }
