// Package topology runs the engine on the kinds of Redis that it supports:
// Sentinels, Cluster, ACL users, replicas, backups.
package topology
