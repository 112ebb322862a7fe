package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/cli/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func newExplain(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain CLAIM",
		Short: "Tell why a claim waits and what would help, or where its block came from",
		Long: `Tell why a claim waits and what would help, or where its block came from: what each pool
that could serve it lacks, which claims come before it, and what can be released or made.
NAME alone is an IPClaim of the namespace, else an IPAddressClaim.

Who may list all pools and allocations gets the whole answer. Others get what the status of
the claim says, and what they may read of their own namespace.`,
		Example: `  kubectl ipam explain web
  kubectl ipam explain ipaddressclaim/machine-0
  kubectl ipam explain machine-0 --kind ipaddressclaim`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.first(&v1alpha1.IPClaimList{}, &ipamv1.IPAddressClaimList{}),
	}
	o := bindOutput(cmd)
	var kind string
	cmd.Flags().StringVarP(&kind, "kind", "k", "", "kind of the claim: ipclaim or ipaddressclaim")
	complete(cmd, "kind", "ipclaim", "ipaddressclaim")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		argument := args[0]
		if kind != "" {
			argument = kind + "/" + argument
		}
		return e.explain(cmd, argument, o)
	}
	return cmd
}

func (e *env) explain(cmd *cobra.Command, argument string, o *output) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	asked, err := findQuestion(cmd.Context(), c, namespace, argument)
	if err != nil {
		return err
	}
	r, err := e.readQuietly(cmd, register.Scope{})
	if err != nil {
		return err
	}
	known := &knowledge{register: r, namespace: namespace}
	if err := known.read(cmd.Context(), c, asked); err != nil {
		return err
	}
	report := explanation(asked, known)
	if report.PoolsUnread {
		e.note("what each pool lacks is left out, as it takes the right to list ippools, localippools and ipallocations: ask who looks after the pools")
	}
	if format := *o.flags.OutputFormat; (format == "" || format == "wide") && !o.templated() {
		return report.write(e.Out, e.painted(), e.clock.Now())
	}
	return e.print(o, report)
}

// question is a claim of either kind that is to be explained.
type question struct {
	kind, resource string
	obj            client.Object
	request        ipam.Request
	// invalid says why the claim cannot be understood.
	invalid error

	bound           bool
	phase           string
	reason, message string
	block           string
	pool            *v1alpha1.PoolReference
	record          string
	reclaim         v1alpha1.ReclaimPolicy
	// candidates are what the status of the claim says of each pool.
	candidates []Candidate
}

func findQuestion(ctx context.Context, c client.Client, namespace, argument string) (*question, error) {
	kind, name := splitKind(argument)
	key := metav1.ObjectMeta{Namespace: namespace, Name: name}
	claim, address := &v1alpha1.IPClaim{ObjectMeta: key}, &ipamv1.IPAddressClaim{ObjectMeta: key}
	switch kind {
	case "ipclaim":
		return aboutClaim(claim), get(ctx, c, claim)
	case "ipaddressclaim":
		if err := get(ctx, c, address); err != nil {
			return nil, err
		}
		return aboutAddressClaim(ctx, c, address), nil
	case "":
	default:
		return nil, coded(ExitUsage, fmt.Errorf("%s: is no claim: write ipclaim/NAME or ipaddressclaim/NAME", argument))
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if err == nil {
		return aboutClaim(claim), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	if c.Get(ctx, client.ObjectKeyFromObject(address), address) == nil {
		return aboutAddressClaim(ctx, c, address), nil
	}
	return nil, coded(ExitNotFound, fmt.Errorf("%s: there is no claim of that name in namespace %s that you may read: see kubectl get ipclaims -n %[2]s", name, namespace))
}

// knowledge is what the caller may read to explain a claim.
type knowledge struct {
	register  *register.Register
	namespace string
	// tenant is on whose behalf the claim asks; nil where the namespace may not be read.
	tenant *ipam.Tenant
	class  *ipam.Class
	// addressClaims that hold no address, of those that may be listed.
	addressClaims []ipamv1.IPAddressClaim
}

// mayList reports whether the caller may list a resource in all namespaces, or in that of the
// claim where own is true.
func (k *knowledge) mayList(resource string, own bool) bool {
	for _, unread := range k.register.Unread {
		if unread.Resource == resource {
			return own && unread.Namespace == k.namespace
		}
	}
	return true
}

// read reads what the register does not have. What may not be read is left out.
func (k *knowledge) read(ctx context.Context, c client.Client, asked *question) error {
	if err := k.readTenant(ctx, c); err != nil {
		return err
	}
	if name := asked.request.Class; name != "" {
		class := &v1alpha1.IPClass{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, class)
		if read, errs := adapt.Class(class); err == nil && len(errs) == 0 {
			k.class = &read
		}
	}
	list := &ipamv1.IPAddressClaimList{}
	err := c.List(ctx, list)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, list, client.InNamespace(k.namespace))
	}
	if err == nil { // Cluster API need not be there
		k.addressClaims = list.Items
	}
	return ctx.Err()
}

// readTenant reads the project of the namespace. A namespace without the label is a project of
// its name only where no namespace has that name as its label.
func (k *knowledge) readTenant(ctx context.Context, c client.Client) error {
	namespace := &corev1.Namespace{}
	if c.Get(ctx, client.ObjectKey{Name: k.namespace}, namespace) != nil {
		return ctx.Err()
	}
	project := namespace.Labels[v1alpha1.LabelProject]
	if project == "" {
		labelled := &corev1.NamespaceList{}
		err := c.List(ctx, labelled, client.MatchingLabels{v1alpha1.LabelProject: k.namespace}, client.Limit(1))
		if err != nil || len(labelled.Items) > 0 {
			return ctx.Err()
		}
		project = k.namespace
	}
	k.tenant = &ipam.Tenant{Project: project}
	return nil
}
