package live

import "testing"

// TestEmptyListIsNotNull keeps the lists that a page goes through from being null.
func TestEmptyListIsNotNull(t *testing.T) {
	for want, line := range map[string]func() ([]byte, error){
		`{"type":"pools","pools":[]}`:    func() ([]byte, error) { return PoolsLine(nil) },
		`{"type":"blocks","blocks":[]}`:  func() ([]byte, error) { return BlocksLine(nil) },
		`{"type":"waiting","claims":[]}`: func() ([]byte, error) { return WaitingLine(nil) },
	} {
		if got, err := line(); err != nil || string(got) != want+"\n" {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
