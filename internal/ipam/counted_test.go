package ipam

import "testing"

func TestNumbersHaveTheirNouns(t *testing.T) {
	for want, got := range map[string]string{
		"0 blocks":       Counted(0, "block"),
		"1 block":        Counted(1, "block"),
		"2 blocks":       Counted(int64(2), "block"),
		"1 IPAddress":    Counted(1, "IPAddress"),
		"11 IPAddresses": Counted(11, "IPAddress"),
		"1 claim waits":  Numbered(1, "claim waits", "claims wait"),
		"2 claims wait":  Numbered(2, "claim waits", "claims wait"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
