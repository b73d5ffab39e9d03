package mirror

// action is what is done about a name.
type action int

const (
	nothing  action = iota // file and store are the same
	record                 // they are the same, and the manifest does not have it yet
	write                  // the store was changed
	remove                 // the policy was deleted in the store
	forget                 // there is no file, and the store does not know the name
	edited                 // the file was changed
	removed                // the file is gone
	conflict               // both were changed
)

// decide compares a file and the store with what was mirrored last. base is nil if nothing was. file and
// stored are digests, or Absent; stored is empty if the store does not know the name. head may be nil then.
func decide(base *entry, file, stored string, head *Head) action {
	switch {
	case stored == "":
		return withoutStore(base, file)
	case file == stored:
		return same(base, file, head)
	case fileUnchanged(base, file, head):
		if stored == Absent {
			return remove
		}
		return write
	case base == nil && stored == Absent:
		return edited
	case base != nil && (stored == base.Digest || head.RevisionID == base.Revision):
		if file == Absent {
			return removed
		}
		return edited
	}
	return conflict
}

// withoutStore is for a name that the store does not know, such as a store that was replaced. No file is
// deleted for that.
func withoutStore(base *entry, file string) action {
	switch {
	case file != Absent:
		return edited
	case base != nil:
		return forget
	}
	return nothing
}

// same is for a file that has what the store has. That there is neither is recorded too, since a file that
// is made later is an edited one.
func same(base *entry, file string, head *Head) action {
	if base == nil || base.Next != "" || base.Digest != file || base.Revision != head.RevisionID {
		return record
	}
	return nothing
}

// fileUnchanged reports whether nobody has changed the file since it was mirrored, or since the writer of
// a revision that was not mirrored yet has seen it.
func fileUnchanged(base *entry, file string, head *Head) bool {
	if base == nil {
		return file == Absent || file == head.Over
	}
	return file == base.Digest || file == base.Next || file == head.Over && head.RevisionID != base.Revision
}
