package webhooks

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGenerateNameIsResolved(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, c := range []struct {
		name, generateName, want string
		random                   int // characters after it
	}{
		{name: "a", want: "a"},
		{name: "a", generateName: "b-", want: "a"},
		{generateName: "b-", want: "b-", random: 8},
		{generateName: long, want: long[:58], random: 8},
		{},
	} {
		got := nameFor(&metav1.ObjectMeta{Name: c.name, GenerateName: c.generateName})
		if !strings.HasPrefix(got, c.want) || len(got) != len(c.want)+c.random {
			t.Errorf("name %q, generateName %q: %q, want %q and %d characters", c.name, c.generateName, got, c.want, c.random)
		}
	}
}

func TestInvalidTimeIsRefusedByField(t *testing.T) {
	shared := &services{schemas: readSchemas()}
	for name, text := range map[string]string{"empty": "", "blank": " ", "a number": "90", "words": "a while"} {
		t.Run(name, func(t *testing.T) {
			d := &draft{object: map[string]any{"spec": map[string]any{"cidr": "10.0.0.0/24", "reuseDelay": text}}}
			answer := shared.unreadable("IPPool", d, errors.New("the decoder's error"))
			if answer.Allowed || answer.Result.Code != 422 || !strings.Contains(answer.Result.Message, "spec.reuseDelay") {
				t.Errorf("%+v", answer.Result)
			}
		})
	}
}
