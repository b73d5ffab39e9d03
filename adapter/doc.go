// Package adapter runs agents for leased tasks.
package adapter
