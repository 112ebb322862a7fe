package ipaddressclaim

import (
	"context"
	"maps"
	"net/netip"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// noted holds the notifications of the collection of orphans, by record.
type noted map[string]string

func (n noted) Judge(string, func(context.Context, client.Reader, ipam.Record) (bool, error)) {}

func (n noted) ReportDeleted(uid string, records ...ipam.Name) {
	for _, record := range records {
		n[record.Name] = "gone " + uid
	}
}

func (n noted) Enqueue(records ...ipam.Name) {
	for _, record := range records {
		n[record.Name] = "judged"
	}
}

// TestDeletionMarksRecordsOfDeletedObject deletes a claim or its IPAddress while an IPAddress
// of the name is admitted, whose record exists before it.
func TestDeletionMarksRecordsOfDeletedObject(t *testing.T) {
	s, own := servedClaim()
	recordNamed := func(name, uid, address string) ipam.Record {
		r := own
		r.Name.Name, r.UID, r.HolderUID, r.Block = name, name, uid, netip.MustParsePrefix(address+"/32")
		return r
	}
	admitted, earlier := recordNamed("a-admitted", "", "10.0.0.2"), recordNamed("a-earlier", "earlier", "10.0.0.3")
	found := recordNamed(convert.RecordOfHolder(s.holder(), "").Name, "", "10.0.0.4")
	s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: own.Name.Name}
	for name, test := range map[string]struct {
		deleted func(*Controller, event.DeleteEvent)
		object  client.Object
		want    noted
	}{
		"a claim": {
			func(c *Controller, e event.DeleteEvent) { c.claims().Delete(t.Context(), e, newQueue(t)) }, s.claim,
			noted{own.Name.Name: "gone uid", admitted.Name.Name: "judged", earlier.Name.Name: "judged", found.Name.Name: "judged"},
		},
		"an IPAddress": {
			func(c *Controller, e event.DeleteEvent) { c.addresses().Delete(t.Context(), e, newQueue(t)) }, s.address,
			noted{own.Name.Name: "gone uid", admitted.Name.Name: "judged", earlier.Name.Name: "judged", found.Name.Name: "gone "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := noted{}
			c := attachReplica(allocatorWith(t, own, admitted, earlier, found), &Controller{Orphans: got})
			test.deleted(c, event.DeleteEvent{Object: test.object})
			if !maps.Equal(got, test.want) {
				t.Errorf("notified of %v, want %v", got, test.want)
			}
		})
	}
}

// TestEarlierRecordIsJudgedWhenIPAddressAppears restores an IPAddress from a backup when
// another address is recorded for its claim already: no other event reports that record.
func TestEarlierRecordIsJudgedWhenIPAddressAppears(t *testing.T) {
	s, own := servedClaim()
	before := own
	before.Name.Name, before.UID, before.Block = "a-before", "a-before", netip.MustParsePrefix("10.0.0.2/32")
	for name, records := range map[string][]ipam.Record{"it is first": {before, own}, "it is last": {own, before}} {
		t.Run(name, func(t *testing.T) {
			got := noted{}
			c := attachReplica(allocatorWith(t, records...), &Controller{Orphans: got})
			if err := c.recordExisting(t.Context(), s); err != nil || s.record.Name != own.Name {
				t.Errorf("took over %v: %v", s.record.Name, err)
			}
			if want := (noted{"a-before": "judged"}); !maps.Equal(got, want) {
				t.Errorf("notified of %v, want %v", got, want)
			}
		})
	}
}

// newQueue returns a queue of requests that have no worker.
func newQueue(t *testing.T) kubeutil.Queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}
