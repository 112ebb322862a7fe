package command

import (
	"testing"
)

func TestLengthIsParsed(t *testing.T) {
	for text, want := range map[string]int32{"24": 24, "/24": 24, "0": 0, "/128": 128, "129": -1, "-1": -1, "x": -1, "": -1, "//24": -1} {
		var bits *int32
		err := Length{Bits: &bits}.Set(text)
		if got := bits; (err != nil) != (want < 0) || err == nil && *got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestAddressBecomesBlock(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.7": "10.0.0.7/32", "2001:db8::1": "2001:db8::1/128", "10.0.0.0/24": "10.0.0.0/24", "x": "x", "": "", "fe80::1%eth0": "fe80::1%eth0"} {
		if got := AsBlock(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
