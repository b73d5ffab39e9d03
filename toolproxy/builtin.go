package toolproxy

// addBuiltin adds the metered tools of this package.
func (p *Proxy) addBuiltin(cfg Config) error {
	web, err := newHTTPSource(p, cfg.HTTP)
	if err != nil {
		return err
	}
	p.AddSource(web)
	p.OnClose(p.leaseEnds.close)
	p.OnClose(web.close)
	db, err := newSQLSource(p, cfg.SQL)
	if err != nil {
		return err
	}
	p.AddSource(db)
	return nil
}
