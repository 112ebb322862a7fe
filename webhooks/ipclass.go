package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// While no replica runs, classes can still be edited: the CEL rules make the same checks of a spec
// as the webhook, if with less clear messages. Only the webhook refuses a second default class; so
// while none runs, a class can be neither created, nor made the default, nor marked as the
// replacement of another default.
//
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclass,mutating=true,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclasses,verbs=create,versions=v1alpha1,name=ipclass.ipam.cadastre.dev,reinvocationPolicy=Never,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclass,mutating=true,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclasses,verbs=update,versions=v1alpha1,name=update.ipclass.ipam.cadastre.dev,reinvocationPolicy=Never,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclass,mutating=true,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclasses,verbs=update,versions=v1alpha1,name=default.ipclass.ipam.cadastre.dev,reinvocationPolicy=Never,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ipclass,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclasses,verbs=delete,versions=v1alpha1,name=delete.ipclass.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// classMutator implements a webhook that judges classes. It keeps the default class of a family to
// one, except for a class that replaces the other. It changes nothing: it comes before the class's
// CEL rules, which cannot name the value that is wrong.
type classMutator struct{ *services }

// Handle implements admission.Handler.
func (m *classMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	d, err := newDraft(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	class := &v1alpha1.IPClass{}
	if err := m.decoder.Decode(req, class); err != nil {
		return m.unreadable("IPClass", d, err)
	}
	before := &v1alpha1.IPClass{}
	if req.Operation == admissionv1.Update {
		if err := m.decoder.DecodeRaw(req.OldObject, before); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if !class.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, class.Spec) && !becomesDefault(before, class) {
			return admission.Allowed("")
		}
	}
	if err := m.judge(ctx, before, class); err != nil {
		return denied(err)
	}
	return admission.Allowed("").WithWarnings(m.excludedWarnings(before, class)...)
}

// excludedWarnings returns a warning if an edit excludes LocalIPPools that name the class.
func (m *classMutator) excludedWarnings(before, class *v1alpha1.IPClass) []string {
	if !before.Spec.AllowLocalPools || class.Spec.AllowLocalPools {
		return nil
	}
	local := slices.DeleteFunc(m.Catalog.PoolsNaming(class.Name), func(key ipam.PoolKey) bool { return key.Namespace == "" })
	if len(local) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("spec.allowLocalPools: new claims of this class are no longer served from %s that have it in classNames, and blocks that are held stay: set it again if claims need these pools",
		ipam.FormatCount(len(local), "LocalIPPool"))}
}

func classSubject(name string) subject {
	return subject{kind: "IPClass", name: name}
}

// judge judges a class. A class that was the default before can stay it.
func (m *classMutator) judge(ctx context.Context, before, class *v1alpha1.IPClass) error {
	_, errs := convert.Class(class)
	if len(errs) == 0 && becomesDefault(before, class) {
		second, err := m.secondDefault(ctx, class)
		if err != nil {
			return classSubject(class.Name).refusal(err)
		}
		errs = append(errs, second...)
	}
	if len(errs) == 0 {
		return nil
	}
	return classSubject(class.Name).invalid(errs...)
}

// secondDefault refuses a class as the default while another one is the default, unless it replaces
// that one. It reads live: two classes are often made by one command.
func (m *classMutator) secondDefault(ctx context.Context, class *v1alpha1.IPClass) (field.ErrorList, error) {
	classes := &v1alpha1.IPClassList{}
	if err := m.Live.List(ctx, classes); err != nil {
		return nil, fmt.Errorf("looking for another default class: %w", err)
	}
	for i := range classes.Items {
		other := &classes.Items[i]
		if other.Name != class.Name && inventory.IsDefault(other) && other.Spec.IPFamily == class.Spec.IPFamily && other.Name != replacedClass(class) {
			path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationDefaultClass)
			return field.ErrorList{field.Invalid(path, "true", fmt.Sprintf("IPClass %q is the default class for %s already: remove the annotation here, or switch with kubectl ipam default-class %s",
				other.Name, other.Spec.IPFamily, class.Name))}, nil
		}
	}
	return nil, nil
}

// becomesDefault reports whether the class is the default and was not before, or did not
// replace the same default.
func becomesDefault(before, class *v1alpha1.IPClass) bool {
	return inventory.IsDefault(class) && (!inventory.IsDefault(before) || replacedClass(before) != replacedClass(class))
}

// replacedClass returns the name of the default class that a class replaces.
func replacedClass(class *v1alpha1.IPClass) string {
	return class.Annotations[v1alpha1.AnnotationReplacesDefault]
}

// deleteClass refuses to delete a class for which claims wait. Claims that have their block no
// longer need it.
func (s *services) deleteClass(_ context.Context, _ admission.Request, class *v1alpha1.IPClass) error {
	if waiting := s.Queue.WaitingForClass(class.Name); len(waiting) > 0 {
		return classSubject(class.Name).waitingConflict(waiting)
	}
	return nil
}
