// Package attacks holds sequences of calls that a hostile or broken agent
// makes: against quotas, run keys, reports, logins and the audit log. The
// engine withstands each of them, and package mutants shows that a planted bug
// lets one through.
package attacks
