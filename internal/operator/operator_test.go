package operator

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestRunReturnsErrorOfInvalidOption expects an error before the first call to the API server, which
// does not exist here.
func TestRunReturnsErrorOfInvalidOption(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		config rest.Config
		want   string
	}{
		"the authority of the API server":  {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing-ca"}}, want: "missing-ca: no such file"},
		"the issuer of the certificate":    {args: []string{"--webhook-cert-source=vault"}, want: `mode "vault" is neither`},
		"the version of TLS":               {args: []string{"--tls-min-version=VersionTLS99"}, want: "VersionTLS99"},
		"the authority of client requests": {args: []string{"--webhook-client-ca=missing-client-ca"}, want: "--webhook-client-ca: open missing-client-ca"},
		"the history file":                 {args: []string{"--history-file=/dev/null/history"}, want: "--history-file=/dev/null/history cannot be written"},
	} {
		t.Run(name, func(t *testing.T) {
			o := parseOptions(t, c.args...)
			c.config.Host = "https://127.0.0.1:1"
			if err := Run(t.Context(), &c.config, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
