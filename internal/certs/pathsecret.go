package certs

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// pathLife is the age at which a path secret is replaced in any case. It is short
	// because the API server writes the path into the error of a call that fails, which
	// reaches the API server's own clients.
	pathLife = time.Hour
	// pathInterval is the shortest time between two replacements: clients can cause one,
	// by requests that they cancel.
	pathInterval = 10 * time.Minute
	// pathGrace is how long the secret before is accepted after both configurations have
	// the present one: for API servers whose watch shows them the configurations late.
	pathGrace = time.Minute
	// mostOlder bounds the secrets that are remembered: those of a day at least.
	mostOlder = int(24 * time.Hour / pathInterval)
)

// The keys of the Secret of the paths.
const (
	currentPathKey  = "current"
	sincePathKey    = "since"
	injectedPathKey = "injected"
	previousPathKey = "previous"
	olderPathKey    = "older"
)

// The causes of a replacement, as the metric counts them.
const (
	causeMissing    = "missing"    // the Secret held none
	causeAge        = "age"        // it was in use for pathLife
	causeStart      = "start"      // a replica has started: calls may have failed before
	causeUnanswered = "unanswered" // a request has ended without its answer
)

// aPathSecret is what newPathSecret returns. The API server takes no other
// characters in the path of a webhook (it validates each element as a DNS
// subdomain).
var aPathSecret = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newPathSecret returns 130 random bits.
func newPathSecret() string { return strings.ToLower(rand.Text()) }

// pathSecrets are the secrets with which the webhooks' paths begin, as the Secret
// holds them for all replicas. The zero value is that of a Secret without anything of
// use, and accepts none.
type pathSecrets struct {
	current string
	since   time.Time // when current was made
	// injected is when both configurations were seen with current; zero before that.
	injected time.Time
	// previous are those that the configurations had before, accepted for the grace.
	previous []string
	// older are those before them, the latest first.
	older []string
}

// parsePathSecrets returns the zero value where the data are not what data returns.
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
	// One that is earlier than the secret is about the secret before: a release that does not
	// know this key has replaced it.
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

// pathView is the secrets as one replica sees them. Times are those of its own clock,
// from when it saw a change: clocks of replicas may differ. Only the view of a replica
// that has just started goes by what the Secret says of times.
type pathView struct {
	pathSecrets
	seen time.Time // when the current secret appeared
	// graceEnd is when the previous secrets are not accepted any more; zero while the
	// current one is not in both configurations.
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

// next returns what the Secret should hold, and the cause if that has a new secret.
//
// exposed is the cause for which the current secret may be known to others, empty if
// there is none. present are the secrets that the webhooks have in their paths, each
// once, and an empty one if a webhook has none. No secret is replaced before it is in
// both configurations and the grace of the one before it is over.
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
	case len(v.previous) > 0 && now.Before(v.graceEnd):
		return v.pathSecrets, ""
	case exposed != "" && !now.Before(v.seen.Add(pathInterval)):
		return v.replaced(now), exposed
	case !now.Before(v.seen.Add(pathLife)):
		return v.replaced(now), causeAge
	}
	return v.pathSecrets, ""
}

// inject returns the secret that a webhook should have in its path, given the one
// that it has. A new secret waits for the handover, so that all replicas accept it
// by then.
func (v pathView) inject(now time.Time, has string) string {
	if len(v.previous) == 0 || !v.injected.IsZero() || !now.Before(v.seen.Add(handover)) {
		return v.current
	}
	if has == v.current || slices.Contains(v.previous, has) {
		return has
	}
	return v.previous[0]
}

// A Standing says how a request on a path is to be answered.
type Standing int

const (
	// PathUnknown is that of a path that was never given to the API server, as far as is
	// remembered.
	PathUnknown Standing = iota
	// PathOlder is that of a path that was replaced.
	PathOlder
	// PathAccepted is that of a path at which the API server calls.
	PathAccepted
)

// standing takes the same time for all secrets of one length.
func (v pathView) standing(secret string, now time.Time) Standing {
	current := equal(secret, v.current) && v.current != ""
	previous, older := among(secret, v.previous), among(secret, v.older)
	inGrace := v.graceEnd.IsZero() || now.Before(v.graceEnd)
	switch {
	case current, previous && inGrace:
		return PathAccepted
	case previous, older:
		return PathOlder
	}
	return PathUnknown
}

func among(secret string, all []string) bool {
	found := false
	for _, one := range all {
		found = equal(secret, one) || found
	}
	return found
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// due returns how long it takes until the next decision.
func (v pathView) due(now time.Time) time.Duration {
	next := recheck
	for _, at := range []time.Time{v.seen.Add(handover), v.graceEnd, v.seen.Add(pathInterval), v.seen.Add(pathLife)} {
		if left := at.Sub(now); left > 0 {
			next = min(next, left)
		}
	}
	return next
}

func (c *Certs) readSecret(ctx context.Context, s *scope) error {
	secret := &corev1.Secret{}
	err := c.reader.Get(ctx, c.options.secret(), secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.options.secret(), err)
	}
	s.secret = secret
	s.held, s.unusable = parseHeld(secret.Data)
	return nil
}

// rotate writes to the Secret what it should hold.
func (c *Certs) rotate(ctx context.Context, s *scope) error {
	if s.secret == nil {
		return makeSecret(ctx, c.writer, c.options.secret(), fieldOwner)
	}
	next, news, err := s.held.next(s.now, c.options.names(), trusted(s.configurations))
	if err != nil {
		return fmt.Errorf("issuing: %w", err)
	}
	if news == "" {
		return nil
	}
	data, err := next.data()
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if err := writeSecret(ctx, c.writer, s.secret, data, fieldOwner); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Wrote the Secret of the webhooks: "+news, "expires", next.serving.Leaf.NotAfter)
	s.held = next
	return nil
}

// makeSecret makes the Secret without anything in it. All replicas may do so at
// once; which of them fills it is decided by its resource version, in the pass
// that its creation starts. It is an apply because a right to create by POST
// cannot be limited to one name.
func makeSecret(ctx context.Context, writer client.Client, secret types.NamespacedName, owner client.FieldOwner) error {
	empty := applycorev1.Secret(secret.Name, secret.Namespace)
	if err := writer.Apply(ctx, empty, owner); err != nil {
		return fmt.Errorf("making Secret %s: %w", secret, err)
	}
	return fmt.Errorf("%w for Secret %s, which was just made", errWait, secret)
}

// writeSecret writes data into the Secret, unless another has written it meanwhile.
func writeSecret(ctx context.Context, writer client.Writer, secret *corev1.Secret, data map[string][]byte, owner client.FieldOwner) error {
	before := secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, secret, patch, owner); err != nil {
		return fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
