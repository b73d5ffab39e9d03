package adapter

import (
	"crypto/tls"
	"errors"
	"strings"
)

// tlsFault says why nothing can be said to a server that is there, and what to
// do about it; empty when TLS is not the reason.
func tlsFault(err error) (what, remedy string) {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return "shows a certificate that is not trusted here: " + certificate.Err.Error(),
			"Trust the authority that signed it on this machine; on Linux SSL_CERT_FILE=FILE names another one. Or use a host name that the certificate has."
	case err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "speaks no TLS", "Write http:// instead of https://."
	}
	return "", ""
}
