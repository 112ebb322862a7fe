package ipclaim

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestUnconfirmedRecordDoesNotBindClaim plays attempts to record a claim's block again whose
// order is unknown: the answer of the create call was lost, or its process ended.
func TestUnconfirmedRecordDoesNotBindClaim(t *testing.T) {
	claim, record := boundClaim()
	rival := rivalOf(record)
	for _, test := range []struct {
		what        string
		terminating bool
		atAdmission bool
		rival       []ipam.Record
		taken       bool
	}{
		{"it overlaps another, and a list does not show which was first", false, false, []ipam.Record{rival}, true},
		{"so does one that is being deleted", true, false, []ipam.Record{rival}, true},
		{"the other has gone since", false, false, nil, false},
		{"it was made at admission, which confirmed it before the claim named it", false, true, []ipam.Record{rival}, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			record := record
			if record.Terminating = test.terminating; test.atAdmission {
				record.HolderUID = ""
			}
			c := attachReplica(allocatorWith(t, append(test.rival, record)...), &Controller{})
			c.Ledger.SetClaimed(record.Name, true)
			s := &scope{claim: claim}
			if err := readRequest(s); err != nil {
				t.Fatal(err)
			}
			err := c.verify(t.Context(), s)
			taken, ok := errors.AsType[*ipam.TakenError](err)
			switch {
			case ok != test.taken || !ok && err != nil:
				t.Errorf("%v, want that it is taken: %t", err, test.taken)
			case ok && taken.Holder != rival.Holder:
				t.Errorf("%v, want that %s has it", err, rival.Holder)
			case !ok && s.record.UID != record.UID:
				t.Errorf("the claim has the record %q", s.record.UID)
			}
		})
	}
}

// TestConflictHidesHolderFromOtherProjects expects that only a claim of the same project
// names the other holder.
func TestConflictHidesHolderFromOtherProjects(t *testing.T) {
	for namespace, isNamed := range map[string]bool{"team": true, "beside": true, "strangers": false, "unknown": false} {
		t.Run(namespace, func(t *testing.T) {
			claim, record := boundClaim()
			rival := rivalOf(record)
			rival.Name.Namespace, rival.Holder.Namespace = namespace, namespace
			record.HolderUID, rival.HolderUID = "", "" // both were made at admission
			a := allocatorWith(t, record, rival)
			for name, project := range map[string]string{"team": "ours", "beside": "ours", "strangers": "theirs"} {
				a.Catalog.SetProject(name, project)
			}
			a.Ledger.SetClaimed(record.Name, true)
			a.Ledger.SetClaimed(rival.Name, true)
			s := &scope{claim: claim}
			if err := readRequest(s); err != nil {
				t.Fatal(err)
			}
			if err := attachReplica(a, &Controller{}).verify(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if s.conflict == "" || strings.Contains(s.conflict, rival.Holder.Name) != isNamed {
				t.Errorf("the conflict is %q, want that the holder is named: %t", s.conflict, isNamed)
			}
		})
	}
}

// TestClaimWithLostBlockHidesNewHolder removes the record of a claim, and
// records its block for another: its status reports it, for all to read.
func TestClaimWithLostBlockHidesNewHolder(t *testing.T) {
	for namespace, isNamed := range map[string]bool{"beside": true, "strangers": false} {
		t.Run(namespace, func(t *testing.T) {
			claim, record := boundClaim()
			record.Name = ipam.Name{Namespace: namespace, Name: "secret-12345678"}
			record.Holder = convert.HolderOfClaim(ipam.Name{Namespace: namespace, Name: "secret"})
			a := allocatorWith(t, record)
			for name, project := range map[string]string{"team": "ours", "beside": "ours", "strangers": "theirs"} {
				a.Catalog.SetProject(name, project)
			}
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim).Build()
			if err := there.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			c := attachReplica(a, &Controller{Client: there, Live: there, Events: events.NewFakeRecorder(10)})
			if _, err := c.Reconcile(t.Context(), claim); err == nil {
				t.Error("it is not tried again")
			}
			if err := there.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Reason != v1alpha1.ReasonConflict || strings.Contains(ready.Message, "secret") != isNamed {
				t.Errorf("its condition is %+v, want that the holder is named: %t", ready, isNamed)
			}
		})
	}
}
