package edit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// notServed describes the claims without a class name that the present default class serves, and
// that the next one would not serve. The present class may be nil.
func notServed(before, next *v1alpha1.IPClass) []string {
	if before == nil || before.Name == next.Name {
		return nil
	}
	present, errs := convert.Class(before)
	coming, invalid := convert.Class(next)
	if len(errs) > 0 { // it serves nothing
		return nil
	}
	if len(invalid) > 0 {
		return []string{fmt.Sprintf("it is not valid: %v", invalid.ToAggregate())}
	}
	return append(notServedNow(next, coming), refused(before.Name, present, coming)...)
}

// refused describes the claims that the coming class refuses and the present one does not.
func refused(name string, present, coming ipam.Class) []string {
	var lost []string
	if present.Length != ipam.NoLength && coming.Length == ipam.NoLength {
		lost = append(lost, "it has no defaultPrefixLength: claims that do not say how large a block they need would be refused")
	}
	if coming.Lengths.Min > present.Lengths.Min || coming.Lengths.Max < present.Lengths.Max {
		lost = append(lost, fmt.Sprintf("it allows /%d to /%d, and %s allows /%d to /%d: claims for other lengths would be refused",
			coming.Lengths.Min, coming.Lengths.Max, name, present.Lengths.Min, present.Lengths.Max))
	}
	if coming.Visibility != ipam.VisibilityShared && (coming.Visibility != present.Visibility || coming.Project != present.Project) {
		lost = append(lost, fmt.Sprintf("its visibility is %s: claims of other namespaces would find no default class", ofProject(coming)))
	}
	if present.AllowRetain && !coming.AllowRetain {
		lost = append(lost, "it does not allow Retain: claims that ask for it would be refused")
	}
	if present.OnExhaustion != ipam.OnExhaustionReject && coming.OnExhaustion == ipam.OnExhaustionReject {
		lost = append(lost, "its onExhaustion is Reject: claims for which there is no room would be refused, and not wait")
	}
	return lost
}

// notServedNow explains why a class serves no claims at present.
func notServedNow(class *v1alpha1.IPClass, read ipam.Class) []string {
	ready := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case !class.DeletionTimestamp.IsZero():
		return []string{"it is being deleted"}
	case !read.Native:
		return []string{fmt.Sprintf("it is served by another provisioner, %s", class.Spec.Provisioner)}
	case class.Status.Pools == 0 && (ready == nil || ready.Reason == v1alpha1.ReasonNoPools):
		return []string{"no IPPool that is ready backs it: claims would wait"}
	}
	return nil
}

func ofProject(class ipam.Class) string {
	if class.Project == "" {
		return string(class.Visibility)
	}
	return fmt.Sprintf("%s, of project %s", class.Visibility, class.Project)
}
