package certs

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const oldSecret, otherSecret = "abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba"

func TestPathSecretIsUniqueValidPathElement(t *testing.T) {
	a, b := newPathSecret(), newPathSecret()
	if !aPathSecret.MatchString(a) || len(validation.IsDNS1123Subdomain(a)) > 0 || a == b {
		t.Errorf("%q, %q", a, b)
	}
}

// viewAtBirth returns a view of a secret that was made at birth, and is in both
// configurations since then.
func viewAtBirth(previous ...string) pathView {
	return pathView{}.follow(pathSecrets{current: oldSecret, since: birth, injected: birth, previous: previous}, birth)
}

func TestNextReplacesPathSecretWhenKnownOrOld(t *testing.T) {
	pending := pathView{}.follow(pathSecrets{current: oldSecret, since: birth, previous: []string{otherSecret}}, birth)
	late := pathView{}.follow(pathSecrets{current: oldSecret, since: birth, injected: birth.Add(pathInterval)}, birth.Add(pathInterval))
	for name, test := range map[string]struct {
		view     pathView
		now      time.Duration // since birth
		exposed  string
		present  []string
		cause    string
		previous []string
		injected bool
	}{
		"nothing is wrong":                        {view: viewAtBirth(), now: time.Hour - 1, injected: true},
		"the Secret is new":                       {cause: causeMissing},
		"the configurations have no path":         {present: []string{""}, cause: causeMissing},
		"the Secret was lost":                     {present: []string{oldSecret}, cause: causeMissing, previous: []string{oldSecret}},
		"the two configurations differ, and lost": {present: []string{oldSecret, "", otherSecret}, cause: causeMissing, previous: []string{oldSecret, otherSecret}},
		"an hour is over":                         {view: viewAtBirth(), now: time.Hour, cause: causeAge, previous: []string{oldSecret}},
		"a request is not answered":               {view: viewAtBirth(), now: 10 * time.Minute, exposed: causeUnanswered, cause: causeUnanswered, previous: []string{oldSecret}},
		"the first was injected late, and leaks":  {view: late, now: pathInterval, exposed: causeUnanswered, cause: causeUnanswered, previous: []string{oldSecret}},
		"one is not answered soon after another":  {view: viewAtBirth(), now: 10*time.Minute - 1, exposed: causeUnanswered, injected: true},
		"one configuration has the former":        {view: pending, now: pathLife, exposed: causeStart, present: []string{oldSecret, otherSecret}, previous: []string{otherSecret}},
		"both configurations have it now":         {view: pending, now: time.Minute, present: []string{oldSecret}, previous: []string{otherSecret}, injected: true},
		"no configuration exists":                 {view: pending, now: time.Minute, previous: []string{otherSecret}},
		"a configuration has an unknown secret":   {view: viewAtBirth(), now: time.Minute, present: []string{otherSecret}, injected: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := birth.Add(test.now)
			next, cause := test.view.next(now, test.exposed, test.present)
			if cause != test.cause || !slices.Equal(next.previous, test.previous) || next.injected.IsZero() == test.injected {
				t.Errorf("next: cause %q, previous %q, injected %v; want %q, %q, %v", cause, next.previous, next.injected, test.cause, test.previous, test.injected)
			}
			if renewed := next.current != test.view.current; renewed != (cause != "") {
				t.Errorf("cause %q, and the secret is new: %v", cause, renewed)
			}
			again := test.view.follow(parsePathSecrets(next.data()), now)
			if more, cause := again.next(now, "", test.present); cause != "" || more.injected.IsZero() == test.injected {
				t.Errorf("at the same moment next wants more: %q", cause)
			}
		})
	}
}

func TestNextKeepsPathSecretDuringGrace(t *testing.T) {
	now := birth.Add(2 * pathLife) // as old, but it could not be injected before
	view := pathView{}.follow(pathSecrets{current: oldSecret, since: birth, previous: []string{otherSecret}}, birth)
	next, _ := view.next(now, causeStart, []string{oldSecret})
	view = view.follow(next, now)
	if _, cause := view.next(now.Add(pathGrace-1), causeStart, nil); cause != "" {
		t.Errorf("within the grace it is replaced: %s", cause)
	}
	if _, cause := view.next(now.Add(pathGrace), causeStart, nil); cause != causeStart {
		t.Errorf("after the grace the cause is %q", cause)
	}
}

func TestPathSecretIsInjectedAfterHandover(t *testing.T) {
	p := pathView{}.follow(pathSecrets{current: newPathSecret(), since: birth, previous: []string{oldSecret}}, birth)
	for _, at := range []struct {
		after       time.Duration
		has, inject string
	}{
		{0, oldSecret, oldSecret},
		{0, "", oldSecret},
		{0, p.current, p.current}, // another replica has seen it before
		{handover - 1, otherSecret, oldSecret},
		{handover, oldSecret, p.current},
	} {
		if got := p.inject(birth.Add(at.after), at.has); got != at.inject {
			t.Errorf("%v: injects %q in place of %q, want %q", at.after, got, at.has, at.inject)
		}
	}
	if got := viewAtBirth(oldSecret).inject(birth, otherSecret); got != oldSecret {
		t.Errorf("the injected secret is not put back at once, but %q", got)
	}
	if first := (pathView{}).follow(pathSecrets{current: oldSecret, since: birth}, birth); first.inject(birth, "") != oldSecret {
		t.Error("the first secret waits for the handover")
	}
}

func TestFormerPathSecretIsAcceptedDuringGrace(t *testing.T) {
	const older, unknown = "oooooooooooooooooooooooooo", "uuuuuuuuuuuuuuuuuuuuuuuuuu"
	held := pathSecrets{current: oldSecret, since: birth, previous: []string{otherSecret}, older: []string{older}}
	view := pathView{}.follow(held, birth)
	expect := func(when string, now time.Time, former Standing) {
		t.Helper()
		for secret, want := range map[string]Standing{oldSecret: PathAccepted, otherSecret: former, older: PathOlder, unknown: PathUnknown, "": PathUnknown} {
			if got := view.standing(secret, now); got != want {
				t.Errorf("%s, %q: %v, want %v", when, secret, got, want)
			}
		}
	}
	expect("a day without injection", birth.Add(24*time.Hour), PathAccepted)
	at := birth.Add(25 * time.Hour)
	held.injected = at.Add(-time.Hour) // by the clock of another replica
	view = view.follow(held, at)
	expect("at the end of the grace", at.Add(pathGrace-1), PathAccepted)
	expect("after the grace", at.Add(pathGrace), PathOlder)
	marked := held.injected
	held.injected = time.Time{} // by hand
	view = view.follow(held, at.Add(pathGrace))
	expect("without the mark", at.Add(pathLife), PathAccepted)
	held.injected = marked
	view = view.follow(held, at.Add(pathGrace))
	view = view.follow(view.replaced(at.Add(pathLife)), at.Add(pathLife))
	if got := view.standing(otherSecret, at.Add(pathLife)); got != PathOlder {
		t.Errorf("the one before the former: %v, want older", got)
	}
	if got := (pathView{}).standing("", birth); got != PathUnknown {
		t.Errorf("the zero value: %v", got)
	}
}

// TestNewReplicaKeepsGraceTimesOfSecret expects a later replica to use the
// times in the Secret, but none that is in the future.
func TestNewReplicaKeepsGraceTimesOfSecret(t *testing.T) {
	for name, test := range map[string]struct {
		now    time.Duration // since birth, when it was injected
		former Standing
		seen   time.Duration
	}{
		"in the grace":                {now: 59 * time.Second, former: PathAccepted},
		"hours later":                 {now: 3 * time.Hour, former: PathOlder},
		"its clock is an hour behind": {now: -time.Hour, former: PathAccepted, seen: -time.Hour},
	} {
		now := birth.Add(test.now)
		view := viewAtBirth() // of another replica
		view = pathView{}.follow(pathSecrets{current: view.current, since: view.since, injected: view.injected, previous: []string{otherSecret}}, now)
		if got := view.standing(otherSecret, now); got != test.former || !view.seen.Equal(birth.Add(test.seen)) {
			t.Errorf("%s: %v, seen %v; want %v", name, got, view.seen.Sub(birth), test.former)
		}
		if got := view.standing(otherSecret, now.Add(pathGrace)); got != PathOlder {
			t.Errorf("%s, a grace later: %v", name, got)
		}
	}
}

// TestClockSkewCausesNoExtraReplacement expects that two replicas whose clocks differ by a day
// do not replace each other's secrets.
func TestClockSkewCausesNoExtraReplacement(t *testing.T) {
	const skew = 24 * time.Hour
	held, made := pathSecrets{}, 0
	var fast, slow pathView
	for now := birth; now.Before(birth.Add(3 * pathLife)); now = now.Add(time.Minute) {
		for _, replica := range []struct {
			view  *pathView
			clock time.Time
		}{{&fast, now.Add(skew)}, {&slow, now}} {
			*replica.view = replica.view.follow(held, replica.clock)
			next, cause := replica.view.next(replica.clock, "", []string{held.current})
			if cause != "" {
				made++
			}
			held = parsePathSecrets(next.data())
			*replica.view = replica.view.follow(held, replica.clock)
		}
	}
	if made > 3 {
		t.Errorf("%d secrets in three hours, want one an hour", made)
	}
}

func TestOlderPathSecretsAreBounded(t *testing.T) {
	p := pathSecrets{current: oldSecret, since: birth}
	for range mostOlder + 5 {
		p = p.replaced(birth)
	}
	if len(p.older) != mostOlder || slices.Contains(p.older, oldSecret) || slices.Contains(p.older, p.previous[0]) {
		t.Errorf("%d older secrets, want the latest %d", len(p.older), mostOlder)
	}
}

func TestInvalidPathSecretIsIgnored(t *testing.T) {
	good := pathSecrets{current: oldSecret, since: birth, injected: birth, previous: []string{otherSecret}, older: []string{newPathSecret()}}
	got := parsePathSecrets(good.data())
	if got.current != oldSecret || !got.since.Equal(birth) || !got.injected.Equal(birth) || !slices.Equal(got.previous, good.previous) || !slices.Equal(got.older, good.older) {
		t.Errorf("%+v, want %+v", got, good)
	}
	for key, value := range map[string]string{currentPathKey: "short", sincePathKey: "yesterday"} {
		data := good.data()
		data[key] = []byte(value)
		if got := parsePathSecrets(data); got.current != "" {
			t.Errorf("%s %q: %+v", key, value, got)
		}
	}
	data := good.data()
	data[sincePathKey] = []byte(birth.Add(time.Hour).UTC().Format(time.RFC3339))
	if got := parsePathSecrets(data); !got.injected.IsZero() {
		t.Errorf("a secret is marked as injected at %v, before it was made", got.injected)
	}
}

func TestInjectionIsNotRecordedBeforeSecretWasMade(t *testing.T) {
	for name, c := range map[string]struct{ now, want time.Duration }{
		"a minute later":              {time.Minute, time.Minute},
		"its clock is an hour behind": {-time.Hour, 0},
	} {
		now := birth.Add(c.now)
		view := pathView{}.follow(pathSecrets{current: oldSecret, since: birth}, now)
		next, _ := view.next(now, "", []string{oldSecret})
		if !next.injected.Equal(birth.Add(c.want)) {
			t.Errorf("%s: injected at %s, want %s", name, next.injected.Sub(birth), c.want)
		}
	}
}

func TestLostSecretKeepsOlderSecrets(t *testing.T) {
	view := pathView{}.follow(pathSecrets{current: oldSecret, since: birth, older: []string{otherSecret}}, birth)
	next, cause := view.follow(pathSecrets{}, birth).next(birth, "", []string{oldSecret})
	if cause != causeMissing || !slices.Equal(next.older, []string{otherSecret}) {
		t.Errorf("cause %q, older %q", cause, next.older)
	}
}

func TestNextPassOfPathsIsAtNextDecision(t *testing.T) {
	view := viewAtBirth()
	for _, c := range []struct{ now, until time.Duration }{
		{0, handover},
		{handover, pathGrace},
		{pathGrace, pathInterval},
		{pathInterval, pathLife},
		{pathLife, pathLife + recheck},
	} {
		if got := view.untilDue(birth.Add(c.now)); got != c.until-c.now {
			t.Errorf("at the age of %s the next pass is in %s, want %s", c.now, got, c.until-c.now)
		}
	}
}
