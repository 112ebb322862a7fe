package witness

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The kinds that are watched, by the names of their resources.
const (
	Claims  = "ipclaims"
	Records = "ipallocations"
	Pools   = "ippools"
	// Cluster API's.
	AddressClaims = "ipaddressclaims"
	Addresses     = "ipaddresses"
)

// Annotations by which the clients of the harness mark the objects that they make.
const (
	// AttemptAnnotation names the attempt to create the object.
	AttemptAnnotation = "torture/attempt"
	// AskedAnnotation is on a pool that states its CIDR itself.
	AskedAnnotation = "torture/asked"
)

// Object holds the parts of an object that the witness reads, of every kind.
type Object struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
		Finalizers        []string          `json:"finalizers"`
	} `json:"metadata"`
	Spec struct {
		CIDR           string    `json:"cidr"`
		PoolRef        Reference `json:"poolRef"`
		ParentRef      Reference `json:"parentRef"`
		RoutingDomain  string    `json:"routingDomain"`
		ClassName      string    `json:"className"`
		PrefixLength   int       `json:"prefixLength"`
		AllocationName string    `json:"allocationName"`
		ClaimRef       Reference `json:"claimRef"`
		State          string    `json:"state"`
		StickyKey      string    `json:"stickyKey"`
		// Address is the address of an IPAddress.
		Address       string `json:"address"`
		ReclaimPolicy string `json:"reclaimPolicy"`
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
