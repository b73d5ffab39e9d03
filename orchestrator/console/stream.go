package console

// streamEvents ends with the login: the key behind it is asked with every
// page of events, and when there are none.
func streamEvents(v *request) error {
	return v.console.cfg.Stream(v.Context, v.login.Principal, func() error {
		_, err := v.backend.Logins.CheckLogin(v.ctx(), v.token, v.site.host)
		return err
	})
}
