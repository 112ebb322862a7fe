package operator

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// clientAuthority has a server take client certificates of the authorities in a
// file, and no connection without one. Without a file it changes nothing.
func clientAuthority(file string) (func(*tls.Config), error) {
	if file == "" {
		return func(*tls.Config) {}, nil
	}
	bundle, err := os.ReadFile(file) //nolint:gosec // it is what the flag names
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--webhook-client-ca: %s has no PEM certificate: name a file with the authority of the API servers' client certificates", file)
	}
	return func(c *tls.Config) { c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert }, nil
}
