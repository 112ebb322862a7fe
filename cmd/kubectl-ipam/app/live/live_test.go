package live

import (
	"errors"
	"net/url"
	"testing"
)

func TestBehindListsEachReasonOnce(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis/ipam.cadastre.dev/v1alpha1/ippools?watch=true", Err: errors.New("connection refused")}
	got := inWords([]error{
		&requestError{"watch", "ippools", refused},
		errors.New("nothing was heard of ipclasses for 2m30s: it is listed again"),
		&requestError{"list", "ipallocations", refused},
		&requestError{"watch", "ipallocations", refused},
		&requestError{"list", "ipclaims", errors.New("forbidden")},
	})
	want := "cannot read ipallocations, ippools: connection refused; cannot read ipclaims: forbidden; nothing was heard of ipclasses for 2m30s: it is listed again"
	if got != want {
		t.Errorf("behind returns\n%s, want\n%s", got, want)
	}
	if got := inWords(nil); got != "" {
		t.Errorf("in step it returns %q", got)
	}
}
