package certs

import (
	"crypto/rand"
	"crypto/subtle"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// pathLife is the age at which a path secret is replaced. It is short because
	// the API server writes the path into the error of a call that fails, which
	// reaches the API server's own clients.
	pathLife = 24 * time.Hour
	// skew is how far ahead another replica's clock may be.
	skew = time.Hour
)

// The keys of the Secret of the paths.
const (
	currentPathKey  = "current"
	sincePathKey    = "since"
	previousPathKey = "previous"
)

// aPathSecret is what newPathSecret returns. The API server takes no other
// characters in the path of a webhook (it validates each element as a DNS
// subdomain).
var aPathSecret = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newPathSecret returns 130 random bits.
func newPathSecret() string { return strings.ToLower(rand.Text()) }

// pathSecrets are the secrets with which the webhooks' paths begin. The zero value
// is that of a Secret without anything of use, and accepts none.
type pathSecrets struct {
	current string
	since   time.Time // when current was made
	// previous are those before it. They are accepted for the overlap.
	previous []string
}

// parsePathSecrets returns the zero value where the data are not what data returns.
func parsePathSecrets(data map[string][]byte) pathSecrets {
	since, err := time.Parse(time.RFC3339, string(data[sincePathKey]))
	current := string(data[currentPathKey])
	if err != nil || !aPathSecret.MatchString(current) {
		return pathSecrets{}
	}
	previous := slices.DeleteFunc(strings.Fields(string(data[previousPathKey])), func(p string) bool { return !aPathSecret.MatchString(p) })
	return pathSecrets{current: current, since: since, previous: previous}
}

func (p pathSecrets) data() map[string][]byte {
	return map[string][]byte{
		currentPathKey:  []byte(p.current),
		sincePathKey:    []byte(p.since.UTC().Format(time.RFC3339)),
		previousPathKey: []byte(strings.Join(p.previous, " ")),
	}
}

// next returns what the Secret should hold instead of p, and says what is new;
// nothing is, where p is as it should be.
//
// A secret is replaced when it is old, and when this process started later than an
// overlap after it was made: while no replica answered, calls failed, and their
// errors told it. Where the Secret holds none, those that the configurations have
// are accepted for the overlap.
func (p pathSecrets) next(now, started time.Time, injected []string) (pathSecrets, string) {
	if started.After(now) {
		started = now // the clock went back: that is no reason to replace one at each pass
	}
	switch {
	case p.current == "":
		return pathSecrets{current: newPathSecret(), since: now, previous: injected}, "first path secret"
	case !now.Before(p.since.Add(pathLife)), p.since.Add(overlap).Before(started), p.since.After(now.Add(skew)):
		return pathSecrets{current: newPathSecret(), since: now, previous: []string{p.current}}, "new path secret"
	case len(p.previous) > 0 && !now.Before(p.since.Add(overlap)):
		p.previous = nil
		return p, "only the present path secret is accepted"
	}
	return p, ""
}

// inject returns the secret that a webhook should have in its path, given the one
// that it has. A new secret waits for the handover, so that all replicas accept it
// by then.
func (p pathSecrets) inject(now time.Time, has string) string {
	if len(p.previous) == 0 || !now.Before(p.since.Add(handover)) {
		return p.current
	}
	if has == p.current || slices.Contains(p.previous, has) {
		return has
	}
	return p.previous[0]
}

// accepts reports whether a request with this secret comes from the API server. It
// takes the same time for all secrets of one length.
func (p pathSecrets) accepts(secret string, now time.Time) bool {
	ok := equal(secret, p.current) && p.current != ""
	if now.Before(p.since.Add(overlap)) {
		for _, previous := range p.previous {
			ok = equal(secret, previous) || ok
		}
	}
	return ok
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// due returns how long it takes until the next decision.
func (p pathSecrets) due(now time.Time) time.Duration {
	next := recheck
	for _, after := range []time.Duration{handover, overlap, pathLife} {
		if left := p.since.Add(after).Sub(now); left > 0 {
			next = min(next, left)
		}
	}
	return next
}
