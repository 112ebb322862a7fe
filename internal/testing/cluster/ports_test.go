package cluster

import "testing"

// TestPortIsAssignedOnce requests the port of one cluster for another, which can be of another
// process.
func TestPortIsAssignedOnce(t *testing.T) {
	var one, other ports
	port, err := one.next()
	if err != nil {
		t.Fatal(err)
	}
	check := func(p *ports, want bool) {
		t.Helper()
		if got, err := p.lock(port); got != want || err != nil {
			t.Fatalf("got %t, %v, want %t", got, err, want)
		}
	}
	check(&one, false)
	check(&other, false)
	if err := one.release(); err != nil {
		t.Fatal(err)
	}
	check(&other, true)
	if err := other.release(); err != nil {
		t.Fatal(err)
	}
}
