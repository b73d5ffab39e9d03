package heartbeat

import (
	"strings"
	"testing"
)

func TestWindowDiagnostics(t *testing.T) {
	const path = "preferences.quiet_windows"
	for window, want := range map[string]string{
		`timezone: UTC, start: "08:00", end: "20:00"`:             "",
		`timezone: UTC, start: 08:00, end: 20:00`:                 "",
		`timezone: US/Eastern, start: "23:59", end: "00:00"`:      "",
		`timezone: Local, start: "08:00", end: "20:00"`:           "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: "+01:00", start: "08:00", end: "20:00"`:        "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: UTC+1, start: "08:00", end: "20:00"`:           "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: EST, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: CET, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: GMT, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: EST5EDT, start: "08:00", end: "20:00"`:         "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Etc/UTC, start: "08:00", end: "20:00"`:         "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Etc/GMT+3, start: "08:00", end: "20:00"`:       "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: "", start: "08:00", end: "20:00"`:              "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: 3, start: "08:00", end: "20:00"`:               "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe/Atlantis, start: "08:00", end: "20:00"`: "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe//Berlin, start: "08:00", end: "20:00"`:  "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe/./Berlin, start: "08:00", end: "20:00"`: "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe/../UTC, start: "08:00", end: "20:00"`:   "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: /etc/localtime, start: "08:00", end: "20:00"`:  "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: posix/Europe/Berlin, start: "1:00", end: "2:00"`: "invalid_timezone " + path +
			"[0].timezone 4:18\ninvalid_time_window " + path + "[0].start 4:46\ninvalid_time_window " + path + "[0].end 4:59",
		`start: "08:00", end: "20:00"`:                             "invalid_timezone " + path + "[0].timezone 4:7",
		`timezone: UTC, end: "20:00"`:                              "invalid_time_window " + path + "[0].start 4:7",
		`timezone: UTC, start: "20:00"`:                            "invalid_time_window " + path + "[0].end 4:7",
		`timezone: UTC, start: "08:00", end: "24:00"`:              "invalid_time_window " + path + "[0].end 4:44",
		`timezone: UTC, start: "8:00", end: "20:00"`:               "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:60", end: "20:00"`:              "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:00:00", end: "20:00"`:           "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: " 08:00", end: "20:00"`:             "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: 800, end: "20:00"`:                  "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:00", end: "08:00"`:              "invalid_time_window " + path + "[0].end 4:44",
		`timezone: UTC, start: "08:00", end: "09:00", days: [mon]`: "unsupported_field " + path + "[0].days 4:53",
		`timezone: UTC, start: "08:00", end: "09:00", claim: 1`:    "forbidden_field " + path + "[0].claim 4:53",
	} {
		_, list := parse("---\npreferences:\n  quiet_windows:\n    - {" + window + "}\n---\n")
		if got := found(list); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", window, got, want)
		}
	}
	for windows, want := range map[string]string{
		"active_hours: []":     "invalid_time_window preferences.active_hours 3:3",
		"quiet_windows: []":    "",
		"quiet_windows: {}":    "invalid_time_window preferences.quiet_windows 3:3",
		"active_hours: always": "invalid_time_window preferences.active_hours 3:17",
		"quiet_windows: [x]":   "invalid_time_window preferences.quiet_windows[0] 3:19",
		"quiet_windows:\n    - timezone: UTC\n      start: '01:00'\n      end: '1'": "invalid_time_window " +
			"preferences.quiet_windows[0].end 6:12",
		"quiet_windows:\n    - timezone: UTC\n      start: '01:00'": "invalid_time_window preferences.quiet_windows[0].end 4:7",
	} {
		_, list := parse("---\npreferences:\n  " + windows + "\n---\n")
		if got := found(list); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", windows, got, want)
		}
	}
}

func TestAtMost32Windows(t *testing.T) {
	windows := func(n int) string {
		return "[" + strings.Repeat(`{timezone: UTC, start: "01:00", end: "02:00"}, `, n) + "]"
	}
	for _, c := range []struct {
		active, quiet int
		want          string
	}{
		{32, 0, ""},
		{16, 16, ""},
		{33, 0, "invalid_time_window preferences.active_hours[32] 3:1522"},
		{31, 2, "invalid_time_window preferences.quiet_windows[1] 4:66"},
	} {
		p, list := parse("---\npreferences:\n  active_hours: " + windows(c.active) +
			"\n  quiet_windows: " + windows(c.quiet) + "\n---\n")
		if got := found(list); got != c.want {
			t.Errorf("%d and %d windows: %s, want %s", c.active, c.quiet, got, c.want)
		}
		if p.Valid && len(p.Windows.Active) != 1 {
			t.Errorf("the same window is there %d times", len(p.Windows.Active))
		}
	}
}
