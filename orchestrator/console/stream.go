package console

// liveRoutes is what the script reads to keep an open page up to date.
func liveRoutes() []route {
	return []route{
		{
			name:      "live",
			method:    get,
			path:      "/console/live",
			scopes:    personScopes,
			apiRoutes: []string{"GET /api/v1/events"},
			handle:    streamEvents,
		},
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
