package operator

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
