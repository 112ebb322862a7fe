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
	// pathLife is the age at which a path secret is replaced in any case. It is short
	// because the API server writes the path into the error of a call that fails, which
	// reaches the API server's own clients.
	pathLife = time.Hour
	// pathInterval is the shortest time between two replacements: clients can cause one,
	// by requests that they cancel.
	pathInterval = 10 * time.Minute
	// pathGrace is the time for which the previous secret is accepted after all configurations
	// have the present one, for API servers whose watch shows them the configurations late.
	pathGrace = time.Minute
	// mostOlder bounds the number of older secrets that are remembered. It is enough for at
	// least a day.
	mostOlder = int(24 * time.Hour / pathInterval)
)

// These are the keys of the Secret of the paths.
const (
	currentPathKey  = "current"
	sincePathKey    = "since"
	injectedPathKey = "injected"
	previousPathKey = "previous"
	olderPathKey    = "older"
)

// These are the causes of a replacement, as the metric counts them.
const (
	causeMissing    = "missing"    // the Secret held none
	causeAge        = "age"        // it was in use for pathLife
	causeStart      = "start"      // a replica has started: calls may have failed before
	causeUnanswered = "unanswered" // a request has ended without its answer
)

// aPathSecret matches the secrets that newPathSecret returns. The API server accepts no other
// characters in the path of a webhook (it validates each element as a DNS subdomain).
var aPathSecret = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newPathSecret returns 130 random bits.
func newPathSecret() string { return strings.ToLower(rand.Text()) }

// pathSecrets holds the secrets with which the webhooks' paths begin, as the Secret
// holds them for all replicas. The zero value represents a Secret without useful data,
// and accepts no secret.
type pathSecrets struct {
	current string
	since   time.Time // the time when current was made
	// injected is the time when all configurations were seen with current; zero before that.
	injected time.Time
	// previous holds the secrets that the configurations had before, accepted for the grace.
	previous []string
	// older holds the secrets before previous, the latest first.
	older []string
}

// parsePathSecrets reads the data of a Secret. It returns the zero value if data cannot have
// returned them.
func parsePathSecrets(data map[string][]byte) pathSecrets {
	since, err := time.Parse(time.RFC3339, string(data[sincePathKey]))
	current := string(data[currentPathKey])
	if err != nil || !aPathSecret.MatchString(current) {
		return pathSecrets{}
	}
	p := pathSecrets{
		current: current, since: since,
		previous: parseSecretList(data[previousPathKey]), older: parseSecretList(data[olderPathKey]),
	}
	// A time before since belongs to the previous secret: a release that does not know this key
	// has replaced that secret.
	if at, err := time.Parse(time.RFC3339, string(data[injectedPathKey])); err == nil && !at.Before(since) {
		p.injected = at
	}
	return p
}

func parseSecretList(text []byte) []string {
	return slices.DeleteFunc(strings.Fields(string(text)), func(s string) bool { return !aPathSecret.MatchString(s) })
}

func (p pathSecrets) data() map[string][]byte {
	data := map[string][]byte{
		currentPathKey:  []byte(p.current),
		sincePathKey:    []byte(p.since.UTC().Format(time.RFC3339)),
		injectedPathKey: nil,
		previousPathKey: []byte(strings.Join(p.previous, " ")),
		olderPathKey:    []byte(strings.Join(p.older, " ")),
	}
	if !p.injected.IsZero() {
		data[injectedPathKey] = []byte(p.injected.UTC().Format(time.RFC3339))
	}
	return data
}

// replaced returns the secrets with a new one in front.
func (p pathSecrets) replaced(now time.Time) pathSecrets {
	older := slices.Concat(p.previous, p.older)
	return pathSecrets{
		current: newPathSecret(), since: now,
		previous: []string{p.current}, older: older[:min(len(older), mostOlder)],
	}
}

// pathView holds the secrets as one replica sees them. Its times are the times when the replica
// saw a change, by the replica's own clock, because clocks of replicas can differ. Only a replica
// that has just started uses the times in the Secret.
type pathView struct {
	pathSecrets
	seen time.Time // the time when the current secret appeared
	// graceEnd is the time from which the previous secrets are no longer accepted; zero while the
	// current one is not in all configurations.
	graceEnd time.Time
}

// follow returns the view after the Secret was read.
func (v pathView) follow(read pathSecrets, now time.Time) pathView {
	first := v.current == ""
	next := pathView{pathSecrets: read, seen: v.seen, graceEnd: v.graceEnd}
	if read.current != v.current {
		next.seen, next.graceEnd = now, time.Time{}
		if first && read.since.Before(now) {
			next.seen = read.since
		}
	}
	switch {
	case read.injected.IsZero():
		next.graceEnd = time.Time{}
	case next.graceEnd.IsZero() && first && read.injected.Before(now):
		next.graceEnd = read.injected.Add(pathGrace)
	case next.graceEnd.IsZero():
		next.graceEnd = now.Add(pathGrace)
	}
	if read.current == "" {
		next.older = v.older
	}
	return next
}

// next returns the secrets that the Secret should hold, and the cause if one of them is new.
//
// exposed is the cause for which others may know the current secret, empty if there is none.
// present holds the secrets that the webhooks have in their paths, each once, and an empty one
// if a webhook has none. next replaces no secret before it is in all configurations and the
// grace of the previous one is over.
func (v pathView) next(now time.Time, exposed string, present []string) (next pathSecrets, cause string) {
	switch {
	case v.current == "":
		previous := slices.DeleteFunc(slices.Clone(present), func(s string) bool { return s == "" })
		return pathSecrets{current: newPathSecret(), since: now, previous: previous, older: v.older}, causeMissing
	case v.injected.IsZero():
		next = v.pathSecrets
		if slices.Equal(present, []string{v.current}) {
			next.injected = now
			if now.Before(v.since) {
				next.injected = v.since
			}
		}
		return next, ""
	case len(v.previous) > 0 && now.Before(v.graceEnd): // the first secret may leak at once
		return v.pathSecrets, ""
	case exposed != "" && !now.Before(v.seen.Add(pathInterval)):
		return v.replaced(now), exposed
	case !now.Before(v.seen.Add(pathLife)):
		return v.replaced(now), causeAge
	}
	return v.pathSecrets, ""
}

// inject returns the secret that a webhook should have in its path, given its present
// secret. A new secret waits for the handover, so that all replicas accept it before the API
// server uses it.
func (v pathView) inject(now time.Time, currentPath string) string {
	if len(v.previous) == 0 || !v.injected.IsZero() || !now.Before(v.seen.Add(handover)) {
		return v.current
	}
	if currentPath == v.current || slices.Contains(v.previous, currentPath) {
		return currentPath
	}
	return v.previous[0]
}

// Standing represents the standing of a path, by which a request on it is answered.
type Standing int

const (
	// PathUnknown is the standing of a path that the API server never got, as far as the secrets
	// are remembered.
	PathUnknown Standing = iota
	// PathOlder is the standing of a path that was replaced.
	PathOlder
	// PathAccepted is the standing of a path at which the API server calls.
	PathAccepted
)

// standing returns the standing of a path with this secret. It takes the same time for all
// secrets of one length.
func (v pathView) standing(secret string, now time.Time) Standing {
	current := equal(secret, v.current) && v.current != ""
	previous, older := isAmong(secret, v.previous), isAmong(secret, v.older)
	inGrace := v.graceEnd.IsZero() || now.Before(v.graceEnd)
	switch {
	case current, previous && inGrace:
		return PathAccepted
	case previous, older:
		return PathOlder
	}
	return PathUnknown
}

func isAmong(secret string, all []string) bool {
	isFound := false
	for _, one := range all {
		isFound = equal(secret, one) || isFound
	}
	return isFound
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// untilDue returns the time until the next decision.
func (v pathView) untilDue(now time.Time) time.Duration {
	next := recheck
	for _, dueTime := range []time.Time{v.seen.Add(handover), v.graceEnd, v.seen.Add(pathInterval), v.seen.Add(pathLife)} {
		if remaining := dueTime.Sub(now); remaining > 0 {
			next = min(next, remaining)
		}
	}
	return next
}
