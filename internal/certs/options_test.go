package certs

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

func TestOptionsNameAllObjects(t *testing.T) {
	_, err := New(whole, nil, nil)
	must.Succeed(t, err)
	_, err = NewPaths(whole, PlainPaths{}, nil, nil)
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		edit func(*Options)
		// ofPaths reports whether the path needs it, and fromSecret whether a certificate of another issuer does.
		ofPaths, fromSecret bool
	}{
		"no namespace":              {func(o *Options) { o.Namespace = "" }, true, true},
		"no Secret":                 {func(o *Options) { o.SecretName = "" }, true, true},
		"no Service":                {func(o *Options) { o.ServiceName = "" }, false, false},
		"no mutating configuration": {func(o *Options) { o.MutatingWebhooks = nil }, true, false},
		"one without a name":        {func(o *Options) { o.MutatingWebhooks = []string{"first", ""} }, true, false},
		"no validating one":         {func(o *Options) { o.ValidatingWebhook = "" }, true, false},
		"another mode":              {func(o *Options) { o.Mode = "Other" }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			options := whole
			c.edit(&options)
			if _, err := New(options, nil, nil); err == nil {
				t.Error("the certificate does without")
			}
			if _, err := NewPaths(options, PlainPaths{}, nil, nil); (err != nil) != c.ofPaths {
				t.Errorf("the path: %v", err)
			}
			if options.Mode == "" {
				options.Mode = FromSecret
			}
			if _, err := New(options, nil, nil); (err != nil) != c.fromSecret {
				t.Errorf("a certificate of another issuer: %v", err)
			}
		})
	}
}
