package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestMain removes the pause of client-go after an error: its length depends on the time of the
// last error, which another bubble had at another time.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil //nolint:reassign // one of them paces itself by a clock that it shares with other bubbles
	m.Run()
}

// server lists and watches the IPClaims web of some namespaces, as an API server does for a user
// with the right in some of them.
type server struct {
	mu sync.Mutex
	// fails returns its error in a namespace, or in all; nil: it answers.
	fails      func(namespace string) error
	namespaces []string
	watches    []*watch.RaceFreeFakeWatcher
	lists      int
}

func (s *server) source(namespace string) (kubeutil.StreamingSource, error) {
	return kubeutil.StreamingSource{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := s.failing(namespace); err != nil {
				return nil, err
			}
			s.lists++
			list := &v1alpha1.IPClaimList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.lists)}}
			for _, name := range s.namespaces {
				if namespace == "" || namespace == name {
					list.Items = append(list.Items, *s.claim(name))
				}
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := s.failing(namespace); err != nil {
				return nil, err
			}
			watching := watch.NewRaceFreeFake()
			s.watches = append(s.watches, watching)
			return watching, nil
		},
	}}, nil
}

func (s *server) failing(namespace string) error {
	if s.fails == nil {
		return nil
	}
	return s.fails(namespace)
}

func (s *server) claim(namespace string) *v1alpha1.IPClaim {
	claim := build.Claim(namespace, "web").Obj()
	claim.UID, claim.ResourceVersion = types.UID(namespace), fmt.Sprint(s.lists)
	return claim
}

// becomes changes the answers of the server from now on, and ends all watches.
func (s *server) becomes(fails func(namespace string) error, namespaces ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.namespaces = fails, namespaces
	for _, watching := range s.watches {
		if !watching.IsStopped() {
			watching.Stop()
		}
	}
	s.watches = nil
}

// last returns the watch that was begun last.
func (s *server) last() *watch.RaceFreeFakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[len(s.watches)-1]
}

// listed returns the number of its lists.
func (s *server) listed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

var claims = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "ipclaims"}

// refusing returns an error without the right to read in some namespaces, or all of them.
func refusing(refused ...string) func(string) error {
	return func(namespace string) error {
		if slices.Contains(refused, namespace) {
			return apierrors.NewForbidden(claims, "", errors.New("no role"))
		}
		return nil
	}
}

func down(string) error { return errors.New("connection refused") }

func unserved(string) error { return apierrors.NewNotFound(claims, "") }

// scene holds a feed of a server, for a user of the namespace own.
type scene struct {
	*testing.T
	*server
	live *Live
	feed *feed
}

// play runs a story within a bubble, in which time passes when all goroutines wait.
func play(t *testing.T, first func(namespace string) error, story func(*scene), edits ...func(*feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, server: &server{fails: first, namespaces: []string{"other", "own"}}, live: newLive(clock.RealClock{})}
		s.feed = &feed{
			resource: "ipclaims", namespaced: true, namespace: "own", source: s.source, store: s.live.claimStore(),
			clock: clock.RealClock{}, noted: s.live.rouse,
		}
		for _, edit := range edits {
			edit(s.feed)
		}
		s.live.feeds = []*feed{s.feed}
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		go s.live.Run(ctx)
		time.Sleep(time.Second)
		story(s)
	})
}

// has expects the namespaces whose claims are known, the unread ones, and the reason why it is
// behind.
func (s *scene) has(namespaces, unread, behind string) {
	s.Helper()
	time.Sleep(2 * soon)
	synctest.Wait()
	s.live.mu.Lock()
	var got []string
	for _, namespace := range []string{"other", "own"} {
		if s.live.state.claims[namespace] != nil {
			got = append(got, namespace)
		}
	}
	s.live.mu.Unlock()
	if text := strings.Join(got, " "); text != namespaces {
		s.Errorf("it has the claims of %q, want %q", text, namespaces)
	}
	if text := s.live.Unread().Text; !strings.Contains(text, unread) || unread == "" && text != "" {
		s.Errorf("unread: %q, want %q", text, unread)
	}
	if text, _ := s.live.Behind(); !strings.Contains(text, behind) || behind == "" && text != "" {
		s.Errorf("behind: %q, want %q", text, behind)
	}
}

func TestFeedReadsPermittedNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		first  func(string) error
		has    string
		unread string
	}{
		"everything":        {nil, "other own", ""},
		"its own namespace": {refusing(""), "own", "you may list ipclaims in namespace own alone"},
		"nothing":           {refusing("", "own"), "", "you may not list ipclaims"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, tc.first, func(s *scene) {
				s.has(tc.has, tc.unread, "")
				select {
				case <-s.live.AllRead():
				default:
					s.Error("it is not stated that all readable namespaces are read")
				}
			})
		})
	}
}

func TestOptionalResourceCanBeMissing(t *testing.T) {
	play(t, down, func(s *scene) {
		s.has("", "", "connection refused")
		s.becomes(unserved)
		time.Sleep(10 * time.Second)
		s.has("", "", "")
		s.becomes(nil, "other", "own")
		time.Sleep(again)
		s.has("other own", "", "")
	}, func(f *feed) { f.optional = true })
}

func TestFeedNoticesGrantedRights(t *testing.T) {
	play(t, refusing("", "own"), func(s *scene) {
		s.becomes(refusing(""), "other", "own")
		time.Sleep(again)
		s.has("own", "in namespace own alone", "")
		s.becomes(nil, "other", "own")
		time.Sleep(again + 5*time.Second)
		s.has("other own", "", "")
	})
}

func TestFeedNoticesRevokedRights(t *testing.T) {
	play(t, nil, func(s *scene) {
		s.becomes(refusing(""), "other", "own")
		time.Sleep(patience / 2)
		s.has("other own", "", "forbidden") // the API server can be starting
		time.Sleep(patience + 5*time.Second)
		s.has("own", "in namespace own alone", "")
	})
}

func TestFeedSurvivesStartingAPIServer(t *testing.T) {
	play(t, nil, func(s *scene) {
		s.becomes(refusing("", "own"), "other", "own")
		time.Sleep(patience / 2)
		s.becomes(nil, "other", "own")
		time.Sleep(patience)
		s.has("other own", "", "")
	})
}

func TestFeedReportsUnavailableAPIServer(t *testing.T) {
	play(t, nil, func(s *scene) {
		s.becomes(down)
		s.has("other own", "", "connection refused")
		time.Sleep(time.Minute)
		s.has("other own", "", "connection refused")
		s.becomes(nil, "own") // another was deleted since then
		time.Sleep(6 * time.Second)
		s.has("own", "", "")
	})
}

func TestFirstReadFailureIsReturned(t *testing.T) {
	play(t, down, func(s *scene) {
		if err := s.live.Begun(s.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			s.Errorf("%v, want why", err)
		}
	}, func(f *feed) { f.first = true })
}

func TestSilentWatchIsRestarted(t *testing.T) {
	bookmark := build.Claim("", "").Obj()
	bookmark.ResourceVersion = "7"
	for name, tc := range map[string]struct {
		hears  func(*watch.RaceFreeFakeWatcher)
		within time.Duration
	}{
		"after bookmarks":   {func(w *watch.RaceFreeFakeWatcher) { w.Action(watch.Bookmark, bookmark) }, silent},
		"without bookmarks": {func(*watch.RaceFreeFakeWatcher) {}, deaf},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(s *scene) {
				tc.hears(s.last())
				time.Sleep(tc.within - 5*time.Second)
				if s.has("other own", "", ""); s.listed() != 1 {
					s.Fatalf("it was listed %d times, want once", s.listed())
				}
				time.Sleep(2 * listening)
				if s.has("other own", "", ""); s.listed() != 2 {
					s.Errorf("it was listed %d times, want again", s.listed())
				}
			})
		})
	}
}
