// Package loops makes the API server refuse each write of each controller, in each way in which it
// can, and counts the requests of the operator in that time: a pass that fails must not cause its
// own next one.
package loops

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// watched is the time in which requests are counted.
	watched = 10 * time.Second
	// mostOfAKind bounds the requests of one verb and resource for one object in that time: after 5
	// ms, twice as long each time, and then once a second.
	mostOfAKind = 25
	// mostWrites bounds the requests that change something in that time. Most are made if a claim
	// waits for the block of another one: that record is fenced and deleted, the next one created
	// and bound, and after each of them the pool's status may be written.
	mostWrites = 8
	// servedWithin bounds the time from the end of the cause to the success: until the API server
	// notices that, a second until the next try, and more on a machine that is busy.
	servedWithin = 6 * time.Second
)

// TestMain runs all rows at once: they do little but wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestFailedPassDoesNotTriggerNextPass runs all rows at once, each in a separate namespace with
// separate objects.
func TestFailedPassDoesNotTriggerNextPass(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1, ClusterAPICRDs: true, Audit: true})
	w.Patience = 2 * time.Minute
	answers := conflicts(t)
	n := 0
	for _, write := range writes() {
		for _, refuse := range refusals(answers) {
			if !refuse.refuses(write) {
				continue
			}
			n++
			s := &scene{World: w, write: write, refuse: refuse, name: fmt.Sprintf("row%d", n)}
			t.Run(write.does+", refused by "+refuse.name, func(t *testing.T) {
				t.Parallel()
				s.World = w.For(t)
				s.run()
			})
		}
	}
}

// preparing bounds how many rows create objects at once, so that no create takes too long.
var preparing = make(chan struct{}, 4)

// scene holds one row: a write that is refused in one way.
type scene struct {
	*suite.World
	write  write
	refuse refusal
	// name is the name of the namespace, and of all objects.
	name string
}

func (s *scene) run() {
	s.Namespace(s.name)
	preparing <- struct{}{}
	s.write.prepare(s)
	<-preparing
	end := s.refuse.begin(s)
	s.AwaitCanary(true)
	before := len(s.requests())
	s.write.begin(s)
	select { // there is no event to wait for: the small number of requests is the result
	case <-time.After(watched):
	case <-s.Context().Done():
	}
	s.expectFewRequests(s.requests()[before:])
	if s.write.says != nil && s.refuse.says != nil {
		if says := s.write.says(s); !strings.Contains(says, s.refuse.says(s)) {
			s.Errorf("its condition says %q, want that it names %q", says, s.refuse.says(s))
		}
	}
	end()
	s.AwaitCanary(false)
	ended := time.Now()
	s.Await("it is served", func(context.Context) bool { return s.write.served(s) })
	if took := time.Since(ended); took > servedWithin {
		s.Errorf("it was served %s after the cause had ended, want %s at most", took, servedWithin)
	} else {
		s.Logf("it was served %s after the cause had ended", took.Round(time.Millisecond))
	}
}

// Created creates objects, again and again if the machine is too busy.
func (s *scene) Created(objects ...client.Object) {
	s.Helper()
	for _, obj := range objects {
		s.Await(obj.GetName()+" is created", func(ctx context.Context) bool {
			return client.IgnoreAlreadyExists(s.Create(ctx, obj)) == nil
		})
	}
}

// requests returns those of the operator for the objects of the row.
func (s *scene) requests() []cluster.Audited {
	all, err := s.Audit()
	suite.Must(s, err)
	return slices.DeleteFunc(all, func(a cluster.Audited) bool {
		if a.Verb == "watch" || a.ObjectRef.Resource == "events" {
			return true
		}
		return a.ObjectRef.Namespace != s.name && !slices.Contains(strings.Split(a.ObjectRef.Name, "."), s.name) && (s.write.object == "" || a.ObjectRef.Name != s.write.object)
	})
}

func (s *scene) isRefused(a cluster.Audited) bool {
	return a.Verb == s.write.verb && a.ObjectRef.Resource == s.write.resource && a.ObjectRef.Subresource == s.write.subresource && a.ResponseStatus.Code >= 400
}

// expectFewRequests expects that the write was refused, by few requests, and fewer that change
// anything.
func (s *scene) expectFewRequests(requests []cluster.Audited) {
	if !slices.ContainsFunc(requests, s.isRefused) {
		s.Fatalf("nothing was refused")
	}
	kinds, changes := map[string]int{}, 0
	for _, a := range requests {
		kinds[strings.TrimSuffix(a.Verb+" "+a.ObjectRef.Resource+"/"+a.ObjectRef.Subresource, "/")]++
		if a.Verb != "get" && a.Verb != "list" && a.ResponseStatus.Code < 300 {
			changes++
		}
	}
	s.Logf("requests in %s: %v; %d changed something", watched, kinds, changes)
	for kind, n := range kinds {
		if n > mostOfAKind {
			s.Errorf("%d times %s in %s, want %d at most", n, kind, watched, mostOfAKind)
		}
	}
	if changes > mostWrites {
		s.Errorf("%d requests changed something in %s, want %d at most: %v", changes, watched, mostWrites, kinds)
	}
}
