package certs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scope is what one pass knows.
type scope struct {
	now            time.Time
	configurations []client.Object // by readConfigurations: those that exist
	missing        []string        // by readConfigurations: those that do not
	secret         *corev1.Secret  // by readSecret; nil where there is none
	held           held            // by readSecret, and by rotate where that changes it
	unusable       error           // by readSecret: why held.serving is nil
	again          time.Duration   // when to run the next pass; serve may bring it forward
}

const fieldOwner = client.FieldOwner("cadastre-webhook-certificate")
