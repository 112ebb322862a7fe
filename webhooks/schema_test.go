package webhooks

import (
	"errors"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/manifests/schemas"
)

func TestInvalidTimeIsRefusedByField(t *testing.T) {
	definitions, err := schemas.Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "blank": " ", "a number": "90", "words": "a while"} {
		t.Run(name, func(t *testing.T) {
			d := &draft{object: map[string]any{"spec": map[string]any{"cidr": "10.0.0.0/24", "reuseDelay": text}}}
			answer := unreadable(definitions, "IPPool", d, errors.New("the decoder's error"))
			if answer.Allowed || answer.Result.Code != 422 || !strings.Contains(answer.Result.Message, "spec.reuseDelay") {
				t.Errorf("%+v", answer.Result)
			}
		})
	}
}
