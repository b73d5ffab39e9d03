// Package replies loses, delays and repeats the replies of scripts. Every
// repeated call has its effect once.
package replies
