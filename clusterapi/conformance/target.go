package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Target holds a cluster in which the provider runs, and how to make pools of it.
type Target struct {
	// Client is that of an administrator, from NewClient.
	Client client.WithWatch
	// Pool is a template of text/template for one or more YAML documents. The first one is the
	// pool that claims reference; the others are created before it, such as a Secret. Each clause has
	// a pool of its own, of at least 8 addresses, by .Name, .Namespace and .Index, a number from 1 to 99.
	// Pools without a namespace have the same names in all kits, so that only one kit can run at a time.
	Pool string
	// Addresses is the number of addresses that a pool has for claims; zero if it is not known.
	Addresses int
	// Deadline is the time limit of each wait.
	Deadline time.Duration
}

// NewClient returns a client that knows the kinds that clauses deal with, without a rate limit.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// variables holds the values of a template.
type variables struct {
	Namespace, Name string
	Index           int
}

// indexOf returns the number of a clause: C19 has 19, and B01 has 51.
func indexOf(c Clause) int {
	n, _ := strconv.Atoi(c.ID[1:])
	if c.ID[0] == 'B' {
		n += 50
	}
	return n
}

// render returns the objects of a template, the pool first.
func render(text string, v variables) ([]*unstructured.Unstructured, error) {
	parsed, err := template.New("pool").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the pool: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("filling in the template of the pool: %w", err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(&out, 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the YAML of the pool: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return nil, errors.New("the template of the pool has no object")
	}
	for _, object := range objects {
		if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" {
			return nil, errors.New("the template of the pool has an object without apiVersion, kind or metadata.name")
		}
	}
	return objects, nil
}
