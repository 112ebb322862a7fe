package certs

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const oldSecret, otherSecret = "abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba"

func TestAPathSecretCanBeAnElementOfAPathAndIsNeverTheSame(t *testing.T) {
	a, b := newPathSecret(), newPathSecret()
	if !aPathSecret.MatchString(a) || len(validation.IsDNS1123Subdomain(a)) > 0 || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

func TestNextReplacesAPathSecretInTime(t *testing.T) {
	fresh := func(p ...string) pathSecrets { return pathSecrets{current: oldSecret, since: birth, previous: p} }
	for name, test := range map[string]struct {
		held         pathSecrets
		now, started time.Duration // since birth
		injected     []string
		news         string
		previous     []string
	}{
		"nothing is wrong":                        {held: fresh(), now: time.Minute},
		"the Secret is new":                       {news: "first path secret"},
		"the Secret was lost":                     {injected: []string{oldSecret}, news: "first path secret", previous: []string{oldSecret}},
		"a day is over":                           {held: fresh(), now: pathLife, news: "new path secret", previous: []string{oldSecret}},
		"the one before it is still accepted":     {held: fresh(otherSecret), now: overlap - time.Second, previous: []string{otherSecret}},
		"the overlap is over":                     {held: fresh(otherSecret), now: overlap, news: "only the present path secret is accepted"},
		"a replica starts":                        {held: fresh(), now: 2 * overlap, started: 2 * overlap, news: "new path secret", previous: []string{oldSecret}},
		"a replica starts soon after the other":   {held: fresh(), now: overlap, started: overlap},
		"a clock was years ahead":                 {held: fresh(), now: -2 * skew, news: "new path secret", previous: []string{oldSecret}},
		"a configuration has what nobody put in":  {held: fresh(), now: time.Minute, injected: []string{otherSecret}},
		"the two configurations differ, and lost": {injected: []string{oldSecret, otherSecret}, news: "first path secret", previous: []string{oldSecret, otherSecret}},
	} {
		t.Run(name, func(t *testing.T) {
			now, started := birth.Add(test.now), birth.Add(test.started)
			after, news := test.held.next(now, started, test.injected)
			if news != test.news || !slices.Equal(after.previous, test.previous) {
				t.Errorf("next: %q, previous %q; want %q, %q", news, after.previous, test.news, test.previous)
			}
			if renewed := after.current != test.held.current; renewed != (news == "new path secret" || news == "first path secret") {
				t.Errorf("%q, and the secret is new: %v", news, renewed)
			}
			again := parsePathSecrets(after.data())
			if _, more := again.next(now, started, test.injected); more != "" {
				t.Errorf("after %q, next wants %q at the same moment", news, more)
			}
		})
	}
}

func TestAPathSecretIsInjectedAfterTheHandoverAndItsPredecessorAcceptedForTheOverlap(t *testing.T) {
	p := pathSecrets{current: newPathSecret(), since: birth, previous: []string{oldSecret}}
	for _, at := range []struct {
		after    time.Duration
		has      string
		inject   string
		accepted bool // the old one
	}{
		{0, oldSecret, oldSecret, true},
		{0, "", oldSecret, true},
		{0, p.current, p.current, true}, // another replica's clock is ahead
		{handover - 1, otherSecret, oldSecret, true},
		{handover, oldSecret, p.current, true},
		{overlap - 1, oldSecret, p.current, true},
		{overlap, oldSecret, p.current, false},
	} {
		now := birth.Add(at.after)
		if got := p.inject(now, at.has); got != at.inject {
			t.Errorf("%v: injects %q in place of %q, want %q", at.after, got, at.has, at.inject)
		}
		if !p.accepts(p.current, now) || p.accepts(oldSecret, now) != at.accepted || p.accepts(otherSecret, now) || p.accepts("", now) {
			t.Errorf("%v: accepts the wrong secrets", at.after)
		}
	}
	if first := (pathSecrets{current: oldSecret, since: birth}); first.inject(birth, "") != oldSecret {
		t.Error("the first secret waits for the handover")
	}
	if (pathSecrets{}).accepts("", birth) {
		t.Error("the zero value accepts the empty secret")
	}
}

func TestWhatIsNoPathSecretIsNone(t *testing.T) {
	good := pathSecrets{current: oldSecret, since: birth, previous: []string{otherSecret}}
	if got := parsePathSecrets(good.data()); got.current != oldSecret || !got.since.Equal(birth) || !slices.Equal(got.previous, good.previous) {
		t.Errorf("%+v, want %+v", got, good)
	}
	for key, value := range map[string]string{currentPathKey: "short", sincePathKey: "yesterday"} {
		data := good.data()
		data[key] = []byte(value)
		if got := parsePathSecrets(data); got.current != "" {
			t.Errorf("%s %q: %+v", key, value, got)
		}
	}
}
