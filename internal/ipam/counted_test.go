package ipam

import "testing"

func TestFormatCountAddsNoun(t *testing.T) {
	for want, got := range map[string]string{
		"0 blocks":       FormatCount(0, "block"),
		"1 block":        FormatCount(1, "block"),
		"2 blocks":       FormatCount(int64(2), "block"),
		"1 IPAddress":    FormatCount(1, "IPAddress"),
		"11 IPAddresses": FormatCount(11, "IPAddress"),
		"1 claim waits":  FormatNumber(1, "claim waits", "claims wait"),
		"2 claims wait":  FormatNumber(2, "claim waits", "claims wait"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
