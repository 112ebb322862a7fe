package operator

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

func TestLeaseStatesLeaderVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                 "v1.2.3",
		"v1.2.3-0.2026+dirty":    "v1.2.3-0.2026_dirty",
		"(devel)":                "devel",
		strings.Repeat("v1", 40): "",
		"of two words":           "",
	} {
		lease := &resourcelock.LeaseLock{}
		label(lease, version)
		if got := lease.Labels[versionLabel]; got != want {
			t.Errorf("%q has the label %q, want %q", version, got, want)
		}
	}
}

func TestUnreadableClientCAStopsOperator(t *testing.T) {
	nothing := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := clientAuthority(nothing); err == nil || !strings.Contains(err.Error(), "--webhook-client-ca") {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := os.WriteFile(nothing, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientAuthority(nothing); err == nil || !strings.Contains(err.Error(), "has no PEM certificate") {
		t.Errorf("a file without certificate: %v", err)
	}
	change, err := clientAuthority("")
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if change(c); c.ClientAuth != tls.NoClientCert || c.ClientCAs != nil {
		t.Error("without the flag clients need a certificate")
	}
}
