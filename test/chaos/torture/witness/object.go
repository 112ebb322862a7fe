package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds that are watched, by the names of their resources.
const (
	Claims  = "ipclaims"
	Records = "ipallocations"
	Pools   = "ippools"

	AddressClaims = "ipaddressclaims"
	Addresses     = "ipaddresses"
	Clusters      = "clusters"
)

// Annotations by which the clients of the harness mark the objects that they make.
const (
	// AttemptAnnotation names the attempt to create the object.
	AttemptAnnotation = "torture/attempt"
	// AskedAnnotation is on a pool that states its CIDR itself.
	AskedAnnotation = "torture/asked"
	// MovedAnnotation is on a Cluster that is moved, and comes back before its claims.
	MovedAnnotation = "torture/moved"
)

// Object holds the parts of an object that the witness reads, of every kind.
type Object struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		Generation        int64             `json:"generation"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		CIDR string `json:"cidr"`
		// AdditionalCIDRs are the other blocks of a record.
		AdditionalCIDRs []string `json:"additionalCIDRs"`
		// Occupies and Ranges are a pool's.
		Occupies       string    `json:"occupies"`
		Ranges         []string  `json:"ranges"`
		PoolRef        Reference `json:"poolRef"`
		ParentRef      Reference `json:"parentRef"`
		RoutingDomain  string    `json:"routingDomain"`
		PrefixLength   int       `json:"prefixLength"`
		AllocationName string    `json:"allocationName"`
		ClaimRef       Reference `json:"claimRef"`
		State          string    `json:"state"`
		StickyKey      string    `json:"stickyKey"`
		// Address is the address of an IPAddress.
		Address string `json:"address"`
		// ReleaseAfter is until when a record without holder is kept.
		ReleaseAfter *time.Time `json:"releaseAfter"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		AddressRef Reference         `json:"addressRef"`
		Capacity   map[string]string `json:"capacity"`
		Conditions []Condition       `json:"conditions"`
	} `json:"status"`

	// Block is spec.cidr, the zero Prefix if there is none; for an IPAddressClaim see withBlock.
	Block netip.Prefix `json:"-"`
	// Raw is the object as it is stored.
	Raw []byte `json:"-"`
}

// Reference names another object.
type Reference struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Condition holds one of an object's conditions.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// ObservedGeneration is the generation of the object that the condition is about.
	ObservedGeneration int64 `json:"observedGeneration"`
}

// Read reads an object as the API server stores it.
func Read(raw []byte) (*Object, error) {
	o := &Object{Raw: raw}
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("reading a stored object: %w", err)
	}
	if o.Spec.CIDR != "" {
		block, err := netip.ParsePrefix(o.Spec.CIDR)
		if err != nil {
			return nil, fmt.Errorf("reading spec.cidr: %w", err)
		}
		o.Block = block
	}
	return o, nil
}

// Attempt returns the attempt that made this object, or nothing.
func (o *Object) Attempt() string { return o.Metadata.Annotations[AttemptAnnotation] }

// Terminating reports whether the object is being deleted.
func (o *Object) Terminating() bool { return o.Metadata.DeletionTimestamp != nil }

// says reports whether a condition has the reason.
func (o *Object) says(reason string) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c Condition) bool { return c.Reason == reason })
}

// Is reports whether the condition is True.
func (o *Object) Is(condition string) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c Condition) bool {
		return c.Type == condition && c.Status == "True"
	})
}

func (o *Object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

func (o *Object) String() string {
	return fmt.Sprintf("%s uid=%s cidr=%s", strings.TrimPrefix(o.key(), "/"), o.Metadata.UID, o.Spec.CIDR)
}

// The API server keeps the objects of API groups of address management, ours and Cluster API's, under
// ipamPrefix, and Clusters under clusterPrefix. The witness watches all keys between: only one watch
// has all changes in their order.
const (
	clusterPrefix = "/registry/cluster.x-k8s.io/"
	ipamPrefix    = "/registry/ipam."
)

// Event represents one change that was stored. Events come in the order of etcd's revisions, across
// the kinds of the objects.
type Event struct {
	Revision int64
	// Seen is when the witness was notified.
	Seen   time.Time
	Kind   string
	Before *Object // nil if it was created
	After  *Object // nil if it is gone
}

// Follow passes on every change from the beginning of etcd's history on, until ctx is done. It asks
// etcd itself, over its JSON gateway, so that neither the API server's caches nor its absence come
// between; after etcd was away it continues from the last revision. It returns early only with an
// error that means that something may have been missed.
func Follow(ctx context.Context, etcd string, tell func(Event) error) error {
	f := &follower{etcd: etcd, tell: tell, next: 1, objects: map[string]*Object{}}
	for ctx.Err() == nil {
		if err := f.watch(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond): // etcd may be away
		case <-ctx.Done():
		}
	}
	return nil
}

type follower struct {
	etcd string
	tell func(Event) error
	next int64
	// objects holds the last state of every object, by its key.
	objects map[string]*Object
}

// response holds the answer of etcd's gateway, as far as it is read.
type response struct {
	Result struct {
		Canceled        bool   `json:"canceled"`
		CancelReason    string `json:"cancel_reason"`
		CompactRevision string `json:"compact_revision"`
		Events          []struct {
			Type string `json:"type"`
			KV   struct {
				Key         []byte `json:"key"`
				ModRevision string `json:"mod_revision"`
				Value       []byte `json:"value"`
			} `json:"kv"`
		} `json:"events"`
	} `json:"result"`
}

// watch follows until the connection breaks, which is no error.
func (f *follower) watch(ctx context.Context) error {
	body, err := f.open(ctx)
	if err != nil {
		return nil // etcd is away
	}
	defer func() { _ = body.Close() }()
	decoder := json.NewDecoder(body)
	for {
		var r response
		if err := decoder.Decode(&r); err != nil {
			return nil // etcd went away
		}
		if r.Result.Canceled {
			return fmt.Errorf("etcd ended the watch at revision %d (compacted at %q): %s", f.next, r.Result.CompactRevision, r.Result.CancelReason)
		}
		for _, e := range r.Result.Events {
			revision, err := strconv.ParseInt(e.KV.ModRevision, 10, 64)
			if err != nil {
				return fmt.Errorf("reading a revision: %w", err)
			}
			if err := f.take(string(e.KV.Key), revision, e.KV.Value, e.Type == "DELETE"); err != nil {
				return err
			}
		}
	}
}

func (f *follower) open(ctx context.Context) (io.ReadCloser, error) {
	encode := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }
	end := ipamPrefix[:len(ipamPrefix)-1] + "/" // the character after the dot
	request, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": encode(clusterPrefix), "range_end": encode(end), "start_revision": strconv.FormatInt(f.next, 10),
	}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.etcd+"/v3/watch", bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// take takes one change in. One that is repeated, because the connection broke within a revision,
// is not passed on again.
func (f *follower) take(key string, revision int64, value []byte, deleted bool) error {
	if revision < f.next {
		return nil
	}
	f.next = revision + 1
	resource, isCluster := strings.CutPrefix(key, clusterPrefix)
	if !isCluster && !strings.HasPrefix(key, ipamPrefix) {
		return nil
	}
	if !isCluster {
		_, resource, _ = strings.Cut(strings.TrimPrefix(key, ipamPrefix), "/")
	}
	kind, name, _ := strings.Cut(resource, "/")
	switch kind {
	case Claims, Records, Pools, AddressClaims, Addresses, Clusters:
	default:
		return nil
	}
	e := Event{Revision: revision, Seen: time.Now(), Kind: kind, Before: f.objects[kind+"/"+name]}
	if deleted {
		delete(f.objects, kind+"/"+name)
		return f.tell(e)
	}
	after, err := Read(value)
	if err != nil {
		return fmt.Errorf("%s at revision %d: %w", key, revision, err)
	}
	f.objects[kind+"/"+name], e.After = after, after
	return f.tell(e)
}
