package term

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
)

// Ago says how long an instant lies back, short enough for a column.
func Ago(i picket.Instant) string {
	if i.IsZero() {
		return "-"
	}
	return ShortDuration(time.Since(i.Time()))
}

// ShortDuration writes a duration with at most two units.
func ShortDuration(d time.Duration) string {
	if d < 0 {
		return "-" + ShortDuration(-d)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// ClockText writes a duration as minutes and seconds for the live line.
func ClockText(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
