package envtest

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestFlagsConfigureOperator(t *testing.T) {
	settings, err := Options{Flags: []string{"--default-ip-family=IPv6", "--platform-project", "ops"}}.settings()
	if err != nil {
		t.Fatal(err)
	}
	if settings.DefaultIPFamily != "IPv6" || settings.PlatformProject != "ops" {
		t.Errorf("%+v", settings)
	}
	if got, want := settings.User(), "system:serviceaccount:cadastre-system:cadastre-controller-manager"; got != want {
		t.Errorf("the operator is %s, want %s, which the policies exempt", got, want)
	}
}

func TestFlagsSetByStartAreRejected(t *testing.T) {
	for flag, want := range map[string]string{
		"--webhook-port=1":             "Options.Flags: --webhook-port is set by Start itself: leave it out",
		"--operator-namespace=x":       "Options.Flags: --operator-namespace is set by Start itself: leave it out",
		"--leader-elect":               "Options.Flags: --leader-elect is set by Start itself: leave it out",
		"--metrics-bind-address=:8080": "Options.Flags: --diagnostics-address is set by Start itself: leave it out",
		"IPv6":                         `Options.Flags: "IPv6" is no flag: write --name=value`,
		"--paint=red":                  "Options.Flags: unknown flag: --paint",
	} {
		if _, err := (Options{Flags: []string{flag}}).settings(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

func TestPortInUseIsReplaced(t *testing.T) {
	taken := fmt.Errorf("listening: %w", syscall.EADDRINUSE)
	var ports []int
	op, err := onFreePort(func(port int) (*Operator, error) {
		if ports = append(ports, port); len(ports) < 3 {
			return nil, taken
		}
		return &Operator{}, nil
	})
	if op == nil || err != nil || len(ports) != 3 {
		t.Errorf("%v, %v after %v", op, err, ports)
	}

	other := errors.New("something else")
	tries := 0
	_, err = onFreePort(func(int) (*Operator, error) { tries++; return nil, other })
	if !errors.Is(err, other) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
	_, err = onFreePort(func(int) (*Operator, error) { return nil, taken })
	if !errors.Is(err, taken) {
		t.Errorf("%v, where every port is taken", err)
	}
}
