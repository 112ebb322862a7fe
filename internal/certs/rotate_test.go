package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"slices"
	"testing"
	"time"
)

var (
	birth = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	names = Options{Namespace: "ns", ServiceName: "svc"}.names()
)

// nextData calls next for the data of a Secret. The result must be final.
func nextData(t *testing.T, now time.Time, data map[string][]byte, injected []*x509.Certificate) (map[string][]byte, string) {
	t.Helper()
	before, _ := parseHeld(data)
	after, news, err := before.next(now, names, injected)
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	out, err := after.data()
	if err != nil {
		t.Fatalf("what next returns cannot be written: %v", err)
	}
	again, err := parseHeld(out)
	if err != nil {
		t.Fatalf("what next returns cannot be read: %v", err)
	}
	if _, more, err := again.next(now, names, injected); err != nil || more != "" {
		t.Fatalf("after %q, next wants %q (%v) at the same moment", news, more, err)
	}
	if why := handshake(out, now); why != nil {
		t.Fatalf("after %q, the API server would refuse the certificate: %v", news, why)
	}
	return out, news
}

// handshake connects as the API server does, with the Secret on both ends, without a use of this
// package.
func handshake(data map[string][]byte, now time.Time) error {
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return err
	}
	return handshakeWith(&pair, data["ca.crt"], names[0], now)
}

func handshakeWith(pair *tls.Certificate, bundle []byte, name string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*pair}})
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	go func() {
		if connection, err := listener.Accept(); err == nil {
			_, _ = connection.Read(nil) // shakes hands
			_ = connection.Close()
		}
	}()
	at := func() time.Time { return now }
	connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: name, Time: at})
	if err != nil {
		return err
	}
	return connection.Close()
}

// healthySecret returns a Secret as the operator leaves it, one overlap ago.
func healthySecret(t *testing.T) map[string][]byte {
	t.Helper()
	data, _ := nextData(t, birth, nil, nil)
	return data
}

func pairOf(t *testing.T, pair *tls.Certificate, err error) (certificate, key []byte) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	key, err = encodeKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	return encodeBundle([]*x509.Certificate{pair.Leaf}), key
}

func TestNextRepairsBrokenPartsAndKeepsRest(t *testing.T) {
	const authority, certificate, nothing = "new authority and certificate", "new certificate", ""
	month := birth.AddDate(0, 1, 0)
	other := healthySecret(t)
	for name, test := range map[string]struct {
		now  time.Time
		harm func(data map[string][]byte)
		news string
	}{
		"nothing is wrong":                    {month, func(map[string][]byte) {}, nothing},
		"everything is gone":                  {month, func(d map[string][]byte) { clear(d) }, authority},
		"the authority's key is gone":         {month, func(d map[string][]byte) { delete(d, "ca.key") }, authority},
		"the authority's key is another's":    {month, func(d map[string][]byte) { d["ca.key"] = other["ca.key"] }, authority},
		"the bundle is not PEM":               {month, func(d map[string][]byte) { d["ca.crt"] = []byte("hello") }, authority},
		"the bundle is cut off":               {month, func(d map[string][]byte) { d["ca.crt"] = d["ca.crt"][:200] }, authority},
		"the authority is another's":          {month, func(d map[string][]byte) { d["ca.crt"], d["ca.key"] = other["ca.crt"], other["ca.key"] }, certificate},
		"the certificate is gone":             {month, func(d map[string][]byte) { delete(d, "tls.crt") }, certificate},
		"the key is not the certificate's":    {month, func(d map[string][]byte) { d["tls.key"] = other["tls.key"] }, certificate},
		"the certificate is another's":        {month, func(d map[string][]byte) { d["tls.crt"], d["tls.key"] = other["tls.crt"], other["tls.key"] }, certificate},
		"the certificate is due":              {birth.AddDate(0, 2, 0), func(map[string][]byte) {}, certificate},
		"the certificate has expired":         {birth.AddDate(1, 0, 0), func(map[string][]byte) {}, certificate},
		"the authority is due":                {birth.AddDate(4, 0, 0), func(map[string][]byte) {}, authority},
		"the authority has expired":           {birth.AddDate(6, 0, 0), func(map[string][]byte) {}, authority},
		"the clock was years ahead, but once": {birth.AddDate(-2, 0, 0), func(map[string][]byte) {}, authority},
		"the authority has no right to sign": {month, func(d map[string][]byte) {
			unfit, err := issue(&x509.Certificate{
				NotBefore: birth, NotAfter: birth.AddDate(9, 0, 0), IsCA: true, BasicConstraintsValid: true,
				PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"elsewhere"},
			}, nil)
			d["ca.crt"], d["ca.key"] = pairOf(t, unfit, err)
		}, authority},
		"the authority is a certificate for a server": {month, func(d map[string][]byte) {
			d["ca.crt"], d["ca.key"] = d["tls.crt"], d["tls.key"]
		}, authority},
		"a former authority is still trusted": {month, func(d map[string][]byte) {
			d["ca.crt"] = slices.Concat(d["ca.crt"], other["ca.crt"])
		}, "only the present authority is trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			data := healthySecret(t)
			test.harm(data)
			before := maps.Clone(data)
			after, news := nextData(t, test.now, data, nil)
			if news != test.news {
				t.Errorf("next: %q, want %q", news, test.news)
			}
			if news == certificate && string(before["ca.key"]) != string(after["ca.key"]) {
				t.Error("the authority was replaced too")
			}
		})
	}
}

func TestNewAuthorityJoinsTrustedOnesOnce(t *testing.T) {
	before, _ := parseHeld(healthySecret(t))
	other, _ := parseHeld(healthySecret(t))
	expired, err := issueAuthority(birth.Add(-authorityLife))
	if err != nil {
		t.Fatal(err)
	}
	before.authority = nil
	after, _, err := before.next(birth, names, slices.Concat(before.bundle, other.bundle, []*x509.Certificate{expired.Leaf}))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat([]*x509.Certificate{after.authority.Leaf}, before.bundle, other.bundle)
	if !slices.EqualFunc(after.bundle, want, (*x509.Certificate).Equal) {
		t.Errorf("%d certificates are trusted, want %d: the new one, the former and the injected one", len(after.bundle), len(want))
	}
}

// TestKeyThatCannotSignIsReplaced gives content with keys that are no keys.
func TestKeyThatCannotSignIsReplaced(t *testing.T) {
	content, _ := parseHeld(healthySecret(t))
	keyless := func(of *tls.Certificate) *tls.Certificate {
		return &tls.Certificate{Certificate: of.Certificate, Leaf: of.Leaf}
	}
	unsigning := secretContent{authority: keyless(content.authority), bundle: content.bundle}
	if _, news, err := unsigning.next(birth, names, nil); err != nil || news != "new authority and certificate" {
		t.Errorf("next: %q, %v", news, err)
	}
	for name, unwritable := range map[string]secretContent{
		"the authority":   {authority: keyless(content.authority), serving: content.serving},
		"the certificate": {authority: content.authority, serving: keyless(content.serving)},
	} {
		if _, err := unwritable.data(); err == nil {
			t.Errorf("%s has no key, and is written", name)
		}
	}
}

func TestServerWithIntermediateAuthorityIsVerified(t *testing.T) {
	sign := func(name string, by *tls.Certificate) *tls.Certificate {
		authority, err := issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: birth, NotAfter: birth.AddDate(1, 0, 0),
			IsCA: true, BasicConstraintsValid: true,
		}, by)
		if err != nil {
			t.Fatal(err)
		}
		return authority
	}
	root := sign("root", nil)
	intermediate := sign("intermediate", root)
	served, err := issueServing(birth, names, intermediate)
	if err != nil {
		t.Fatal(err)
	}
	roots := []*x509.Certificate{root.Leaf}
	if verify(served, roots, birth) == nil {
		t.Error("a certificate is verified without the authority that signed it")
	}
	served.Certificate = append(served.Certificate, []byte("unreadable"), intermediate.Certificate[0])
	if err := verify(served, roots, birth); err != nil {
		t.Errorf("a certificate is not verified: %v", err)
	}
}

func TestCertificateGetsMissingNamesAndKeepsOthers(t *testing.T) {
	other, _ := parseHeld(healthySecret(t))
	for _, want := range []string{"a.ns.svc", "b.ns.svc"} {
		after, news, err := other.next(birth, []string{want}, nil)
		if err != nil || news != "new certificate" {
			t.Fatalf("next: %q, %v", news, err)
		}
		other = after
	}
	if want := append([]string{"a.ns.svc", "b.ns.svc"}, names...); !slices.Equal(other.serving.Leaf.DNSNames, want) {
		t.Errorf("names %q, want %q", other.serving.Leaf.DNSNames, want)
	}
	if _, news, err := other.next(birth, []string{"a.ns.svc"}, nil); news != "" || err != nil {
		t.Errorf("the release that wants fewer names replaces the certificate: %q, %v", news, err)
	}
}

// TestRotationKeepsTrustForFifteenYears makes passes for fifteen years, and now and then the Secret is deleted. A
// certificate that was served before a step is trusted after it, as the other replicas go on
// serving it.
func TestRotationKeepsTrustForFifteenYears(t *testing.T) {
	data, injected := map[string][]byte(nil), []byte(nil)
	certificates, authorities, widest := 0, 0, 0
	for turn := range 15 * 365 / 3 {
		day := 3 * turn
		now := birth.AddDate(0, 0, day)
		served := data
		if day%999 == 996 {
			data = nil
		}
		after, news := nextData(t, now, data, ParseBundle(injected))
		if served != nil {
			pair, _ := tls.X509KeyPair(served["tls.crt"], served["tls.key"])
			if err := handshakeWith(&pair, after["ca.crt"], names[0], now); err != nil {
				t.Fatalf("day %d, %q: a replica with the former certificate is cut off: %v", day, news, err)
			}
		}
		switch news {
		case "new certificate":
			certificates++
		case "new authority and certificate":
			authorities++
		}
		data, injected = after, after["ca.crt"]
		widest = max(widest, len(ParseBundle(injected)))
	}
	if len(ParseBundle(injected)) != 1 || widest != 2 {
		t.Errorf("%d authorities are trusted in the end, %d at most; want 1 and 2", len(ParseBundle(injected)), widest)
	}
	if authorities != 6 || certificates < 80 || certificates > 100 { // 5 deletions; no deleted one is old enough to be due
		t.Errorf("%d authorities, %d certificates", authorities, certificates)
	}
}

// FuzzNext gives next a Secret in which a part is overwritten.
func FuzzNext(f *testing.F) {
	f.Add(uint8(0), uint16(0), []byte("-----BEGIN"), int32(0))
	f.Add(uint8(1), uint16(120), []byte{0}, int32(60*24))
	f.Add(uint8(2), uint16(40), []byte("AAAA"), int32(365*24))
	f.Add(uint8(3), uint16(500), []byte("\n"), int32(-1000))
	f.Fuzz(func(t *testing.T, key uint8, at uint16, with []byte, hours int32) {
		data := healthySecret(t)
		name := []string{"tls.crt", "tls.key", "ca.crt", "ca.key"}[key%4]
		place := int(at) % len(data[name])
		data[name] = slices.Concat(data[name][:place], with, data[name][min(place+len(with), len(data[name])):])
		nextData(t, birth.Add(time.Duration(hours)*time.Hour), data, nil)
	})
}
