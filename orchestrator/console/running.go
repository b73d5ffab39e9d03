package console

import (
	"fmt"
	"slices"

	"github.com/picket-dev/picket"
)

const maxRunningRows = 8

// runningView is what runs now, first what needs a look.
type runningView struct {
	Shown []picket.LiveLease
	More  int64 // that are not shown
}

// running is what runs now; nil where the person may not see leases.
func (v *request) running() (*runningView, error) {
	if !v.may("leases") {
		return nil, nil
	}
	held, err := v.backend.Leases.FindLeases(v.ctx(),
		picket.LeaseQuery{Order: picket.LeasesByNeed, Limit: maxRunningRows})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(held.Leases, picket.CompareRunning)
	return &runningView{Shown: held.Leases, More: held.Total - int64(len(held.Leases))}, nil
}

// timeoutShare is the part of its timeout that a run has used, "" where it has none.
func timeoutShare(l picket.LiveLease) string {
	share, limited := l.TimeoutShare()
	if !limited {
		return ""
	}
	return fmt.Sprintf("%d %%", int(share*100))
}

func timeoutNear(l picket.LiveLease) bool {
	share, _ := l.TimeoutShare()
	return share >= picket.RunWarnAt
}

func spentNear(l picket.LiveLease) bool { return l.SpentShare() >= picket.RunWarnAt }
