package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// Finalizer is on every ExampleMachine until its addresses are released.
const Finalizer = "examplemachine.infrastructure.example.com"

// The reasons of the condition Ready of an ExampleMachine.
const (
	// ReasonRunning: the machine has its addresses.
	ReasonRunning = "Running"

	// ReasonWaitingForCluster: the label cluster.x-k8s.io/cluster-name is missing, or
	// there is no such Cluster.
	ReasonWaitingForCluster = "WaitingForCluster"

	// ReasonWaitingForAddress: an IPAddressClaim has no address yet. The message has that of the
	// claim's condition Ready.
	ReasonWaitingForAddress = "WaitingForAddress"

	// ReasonClaimNotOwned: an IPAddressClaim of the name that the machine needs has another owner.
	ReasonClaimNotOwned = "ClaimNotOwned"

	// ReasonDeleting: the machine is being deleted, and its addresses released.
	ReasonDeleting = "Deleting"
)

// ExampleMachineSpec is the desired state of an ExampleMachine.
type ExampleMachineSpec struct {
	// providerID identifies the machine at its infrastructure. The controller sets it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ProviderID string `json:"providerID,omitempty"`

	// addressesFrom names the sources of the machine's addresses, such as one for each family: pools or
	// classes of IPAM providers. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new machine"
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +required
	AddressesFrom []ipamv1.IPPoolReference `json:"addressesFrom,omitempty"`
}

// ExampleMachineStatus is the observed state of an ExampleMachine.
type ExampleMachineStatus struct {
	// conditions are Ready and Paused.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization reports whether the machine was provisioned.
	// +optional
	Initialization ExampleMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses of the machine.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`
}

// ExampleMachineInitializationStatus reports whether the machine was provisioned.
// +kubebuilder:validation:MinProperties=1
type ExampleMachineInitializationStatus struct {
	// provisioned is true when the machine has run once.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// ExampleMachine is a machine of the infrastructure "example", which has nothing but
// addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=examplemachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels=cluster.x-k8s.io/v1beta2=v1alpha1
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[0].address`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type ExampleMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec ExampleMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state.
	// +optional
	Status ExampleMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions, for the helpers of Cluster API.
func (m *ExampleMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets the conditions, for the helpers of Cluster API.
func (m *ExampleMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// ExampleMachineList is a list of ExampleMachines.
//
// +kubebuilder:object:root=true
type ExampleMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExampleMachine `json:"items"`
}
