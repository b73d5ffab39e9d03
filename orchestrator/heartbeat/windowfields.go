package heartbeat

func (r *reader) activeHours(e entry) {
	if list, ok := r.items(e); ok && len(list) == 0 {
		r.refuse(CodeInvalidTimeWindow, e.at, "active_hours is empty; leave it out to allow wakes at any time")
		return
	}
	windows := r.windows(e)
	if len(windows) > 0 && !r.settings.AllowActiveHoursPreferences {
		r.warn(CodePreferenceClamped, e.at, "active_hours is ignored because wake.allow_active_hours_preferences is false")
	}
	r.Windows.Active = windows
}

func (r *reader) quietWindows(e entry) { r.Windows.Quiet = r.windows(e) }

// windows reads a list of windows.
func (r *reader) windows(e entry) (windows []Window) {
	list, ok := r.items(e)
	if !ok {
		r.refuse(CodeInvalidTimeWindow, r.valueAt(e), "%s must be a list of windows", e.at.path)
		r.inside(e, 1)
		return nil
	}
	for _, item := range list {
		if r.windowCount++; r.windowCount > MaxWindows {
			r.refuse(CodeInvalidTimeWindow, item.at, "there are more than %d windows", MaxWindows)
			return nil
		}
		if w, ok := r.window(item); ok {
			windows = append(windows, w)
		}
	}
	return windows
}

// windowText are the fields of a window, as they are written.
type windowText struct{ timezone, start, end *entry }

func (r *reader) window(item entry) (Window, bool) {
	var w windowText
	known := mapping{
		"timezone": func(e entry) { w.timezone = &e },
		"start":    func(e entry) { w.start = &e },
		"end":      func(e entry) { w.end = &e },
	}
	if !r.read(item.at.path, item.value, known) {
		r.refuse(CodeInvalidTimeWindow, r.valueAt(item), "%s must have timezone, start and end", item.at.path)
		r.inside(item, 1)
		return Window{}, false
	}
	zone, zoneOK := r.timezone(item, w.timezone)
	start, startOK := r.clock(item, "start", w.start)
	end, endOK := r.clock(item, "end", w.end)
	if startOK && endOK && start == end {
		r.refuse(CodeInvalidTimeWindow, r.valueAt(*w.end), "start and end are both %s", start)
		return Window{}, false
	}
	window, code := NewWindow(zone, start.String(), end.String())
	return window, zoneOK && startOK && endOK && code == ""
}

func (r *reader) timezone(item entry, e *entry) (string, bool) {
	const remedy = "write an IANA name such as America/Sao_Paulo, or UTC"
	if e == nil {
		missing := item.at
		missing.path = join(item.at.path, "timezone")
		r.refuse(CodeInvalidTimezone, missing, "timezone is missing; %s", remedy)
		return "", false
	}
	name, ok := r.text(*e, CodeInvalidTimezone, remedy)
	if !ok {
		return "", false
	}
	if _, ok = location(name); !ok {
		r.refuse(CodeInvalidTimezone, r.valueAt(*e), "timezone is %s; %s", quoted(name), remedy)
	}
	return name, ok
}

func (r *reader) clock(item entry, field string, e *entry) (Minute, bool) {
	const remedy = `write "HH:MM", from "00:00" to "23:59"`
	if e == nil {
		missing := item.at
		missing.path = join(item.at.path, field)
		r.refuse(CodeInvalidTimeWindow, missing, "%s is missing; %s", field, remedy)
		return 0, false
	}
	text, ok := r.text(*e, CodeInvalidTimeWindow, remedy)
	if !ok {
		return 0, false
	}
	minute, ok := parseMinute(text)
	if !ok {
		r.refuse(CodeInvalidTimeWindow, r.valueAt(*e), "%s is %s; %s", field, quoted(text), remedy)
	}
	return minute, ok
}
