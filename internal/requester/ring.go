package requester

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// SecretName is the Secret with the keys, in the operator's namespace.
	SecretName = "cadastre-requester-key"

	owner = client.FieldOwner("cadastre-requester-key")
	// keyLength is the length of an AES-256 key, in bytes.
	keyLength = 32
	// version begins a sealed user.
	version = "v1"
	// MaxSealed is the largest length of a sealed user: annotations of an object have 256 KiB
	// in all.
	MaxSealed = 16 << 10
	// retryEvery is the interval at which the Secret is read while there is no key, and
	// rereadEvery the interval otherwise.
	retryEvery, rereadEvery = time.Second, time.Minute
)

// ErrNoKey means that a user cannot be sealed, or opened, with the existing keys.
var ErrNoKey = errors.New("no key to seal who asked")

// Subject identifies the object that waits and the pool that it names.
type Subject struct{ Kind, Namespace, Name, Pool string }

// additional returns the data to which a sealed user is bound. No part can contain the
// separator.
func (s Subject) additional() []byte {
	return []byte(strings.Join([]string{version, s.Kind, s.Namespace, s.Name, s.Pool}, "\x00"))
}

// Ring seals users with the newest of the keys in a Secret, and opens them with any. The
// operator never removes a key: an object may wait for longer than any period. A person can add
// a key, as a further entry of the Secret (32 random bytes; the name that sorts last is the
// newest), and can remove one when no object waits with a user that it sealed. Its methods may
// be called concurrently.
type Ring struct {
	reader client.Reader // reads from the API server
	writer client.Client
	secret types.NamespacedName
	clock  clock.PassiveClock
	// read is the time when refresh last loaded the keys.
	read time.Time

	mu   sync.RWMutex
	keys map[string][]byte // by the name of the entry
}

// NewRing returns a Ring that has no key before it is started.
func NewRing(reader client.Reader, writer client.Client, namespace string, clock clock.PassiveClock) *Ring {
	return &Ring{reader: reader, writer: writer, clock: clock, secret: types.NamespacedName{Namespace: namespace, Name: SecretName}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica seals.
func (r *Ring) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It makes the Secret if it is missing, also later, with the
// keys that this replica has.
func (r *Ring) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.refresh, retryEvery)
	return nil
}

// refresh loads the keys if they have not been read for rereadEvery. Only Start calls it.
func (r *Ring) refresh(ctx context.Context) {
	if r.clock.Now().Sub(r.read) < rereadEvery {
		return
	}
	err := r.Load(ctx)
	if err == nil {
		r.read = r.clock.Now()
	} else if !apierrors.IsConflict(err) && ctx.Err() == nil {
		log.FromContext(ctx).WithName("requester-key").Error(err, "Could not read the keys for requesters; retrying")
	}
}

// Load reads the Secret, and writes a key into it if it has none.
func (r *Ring) Load(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := r.reader.Get(ctx, r.secret, secret)
	if apierrors.IsNotFound(err) {
		if err = r.writer.Apply(ctx, applycorev1.Secret(r.secret.Name, r.secret.Namespace), owner); err != nil {
			return fmt.Errorf("making Secret %s: %w", r.secret, err)
		}
		err = r.reader.Get(ctx, r.secret, secret)
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", r.secret, err)
	}
	keys := usable(secret.Data)
	if len(keys) == 0 {
		if keys, err = r.write(ctx, secret); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = keys
	return nil
}

func usable(data map[string][]byte) map[string][]byte {
	keys := maps.Clone(data)
	maps.DeleteFunc(keys, func(_ string, key []byte) bool { return len(key) != keyLength })
	return keys
}

// write fills a Secret without keys, unless another replica has done so. It writes the keys
// that this replica knows, so that no sealed user is lost with a deleted Secret.
func (r *Ring) write(ctx context.Context, secret *corev1.Secret) (map[string][]byte, error) {
	r.mu.RLock()
	keys := maps.Clone(r.keys)
	r.mu.RUnlock()
	if len(keys) == 0 {
		key := make([]byte, keyLength)
		_, _ = rand.Read(key) // never fails
		keys = map[string][]byte{r.clock.Now().UTC().Format("20060102T150405Z"): key}
	}
	before := secret.DeepCopy()
	secret.Data = keys
	if err := r.writer.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), owner); err != nil {
		return nil, fmt.Errorf("writing Secret %s: %w", r.secret, err)
	}
	return keys, nil
}

// Seal returns a user as the value of an annotation of the object. The value is different each
// time. Seal sends no request.
func (r *Ring) Seal(user authenticationv1.UserInfo, of Subject) (string, error) {
	r.mu.RLock()
	names := slices.Sorted(maps.Keys(r.keys))
	var key []byte
	if len(names) > 0 {
		key = r.keys[names[len(names)-1]]
	}
	r.mu.RUnlock()
	if key == nil {
		return "", ErrNoKey
	}
	plain, err := json.Marshal(user)
	if err != nil {
		return "", err
	}
	sealer, err := gcm(key)
	if err != nil {
		return "", err
	}
	encrypted := sealer.Seal(nil, nil, plain, of.additional()) //nolint:gosec // this AEAD makes its own nonces and takes none
	text := strings.Join([]string{version, idOf(key), base64.RawURLEncoding.EncodeToString(encrypted)}, ".")
	if len(text) > MaxSealed {
		return "", fmt.Errorf("user %s has too many groups to be noted: %d bytes, at most %d", user.Username, len(text), MaxSealed)
	}
	return text, nil
}

// Open returns the user that was sealed for the object. If the key is not known, it reads the
// Secret again; if the key is still not known, the error is ErrNoKey.
func (r *Ring) Open(ctx context.Context, sealed string, of Subject) (authenticationv1.UserInfo, error) {
	var user authenticationv1.UserInfo
	parts := strings.Split(sealed, ".")
	if len(parts) != 3 || parts[0] != version {
		return user, errors.New("it is not of the operator's making")
	}
	key := r.key(parts[1])
	if key == nil {
		if err := r.Load(ctx); err != nil {
			return user, err
		}
		if key = r.key(parts[1]); key == nil {
			return user, ErrNoKey
		}
	}
	opener, err := gcm(key)
	if err != nil {
		return user, err
	}
	encrypted, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return user, err
	}
	plain, err := opener.Open(nil, nil, encrypted, of.additional())
	if err != nil {
		return user, errors.New("it is of another object, or was changed")
	}
	return user, json.Unmarshal(plain, &user)
}

func (r *Ring) key(id string) []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, key := range r.keys {
		if idOf(key) == id {
			return key
		}
	}
	return nil
}

// idOf names a key without revealing it.
func idOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("cadastre requester key\x00"), key...))
	return hex.EncodeToString(sum[:4])
}

// gcm returns a cipher that takes a random nonce for each message. One key is good for 2^32 of
// them.
func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
