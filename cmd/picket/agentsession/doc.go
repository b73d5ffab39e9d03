// Package agentsession is `picket session`: the conversations of coding agents that adapters keep.
package agentsession
