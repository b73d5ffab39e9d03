package console

// liveRoutes is what the script reads to keep an open page up to date.
func liveRoutes() []route {
	return []route{
		show("live", "/console/live", personScopes, streamEvents, "GET /api/v1/events"),
	}
}

// streamEvents ends with the session: the key behind it is asked with every
// page of events, and when there are none.
func streamEvents(v *request) error {
	return v.console.cfg.Stream(v.Context, v.login.Principal, func() error {
		_, err := v.backend.Logins.CheckLogin(v.ctx(), v.token, v.site.host)
		return err
	})
}
