// Package causes attributes the CPU time of a process to causes, by the functions in the stacks of a profile.
package causes

import (
	"fmt"
	"regexp"

	"github.com/google/pprof/profile"
)

// Rule names a cause, and the functions of which one is in the stack of each of its samples.
type Rule struct {
	Cause string
	In    *regexp.Regexp
}

// Other is the cause of the samples to which no rule applies.
const Other = "other"

// Shares returns the share of each cause in the samples of a CPU profile, as net/http/pprof writes it. The first
// rule that applies to a sample counts.
func Shares(text []byte, rules []Rule) (map[string]float64, error) {
	parsed, err := profile.ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	shares, total := map[string]float64{}, 0.0
	for _, sample := range parsed.Sample {
		nanoseconds := float64(sample.Value[len(sample.Value)-1])
		shares[causeOf(sample, rules)] += nanoseconds
		total += nanoseconds
	}
	for cause := range shares {
		shares[cause] /= total
	}
	return shares, nil
}

func causeOf(sample *profile.Sample, rules []Rule) string {
	for _, rule := range rules {
		for _, location := range sample.Location {
			for _, line := range location.Line {
				if rule.In.MatchString(line.Function.Name) {
					return rule.Cause
				}
			}
		}
	}
	return Other
}

func rule(cause, in string) Rule { return Rule{cause, regexp.MustCompile(in)} }

// collection returns the rule for the work of the garbage collector, also the part that allocations are charged with.
func collection() Rule {
	return rule("garbage collection", `^runtime\.(gcBgMarkWorker|gcAssistAlloc|gcStart|gcMarkTermination|bgsweep|bgscavenge|\(\*sweepLocked\)\.sweep)`)
}

// APIServer returns the rules for kube-apiserver, with custom resources.
func APIServer() []Rule {
	return []Rule{
		collection(),
		rule("comparison of the cache with etcd", `apiserver/pkg/storage/cacher\.\(?\*?consistencyChecker`),
		rule("decode for the watch cache", `apiserver/pkg/storage/etcd3\.\(\*watchChan\)|apiserver/pkg/storage/cacher\.\(\*Reflector\)|client-go/tools/cache\.\(\*Reflector\)`),
		rule("watch fan-out", `apiserver/pkg/storage/cacher\.\(\*(Cacher|cacheWatcher|watchCache)\)\.(dispatch|process|Watch)|handlers\.\(\*WatchServer\)`),
		rule("match conditions, policies", `webhook/matchconditions|apiserver/pkg/admission/plugin/(policy|cel)`),
		rule("webhook call", `apiserver/pkg/admission/plugin/webhook/(mutating|validating|request|generic)|client-go/rest\.\(\*Request\)|x/net/http2\.\(\*(ClientConn|clientConnReadLoop|Transport)\)|net/http\.\(\*(http2ClientConn|http2clientConnReadLoop|http2Transport|Transport|persistConn)\)|net/http/internal/http2\.\(\*(ClientConn|clientConnReadLoop|Transport)\)`),
		rule("managed fields", `managedfields|structured-merge-diff`),
		rule("rules of the schema (CEL)", `apiextensions-apiserver/pkg/apiserver/schema/cel`),
		rule("validation by the schema (OpenAPI)", `kube-openapi/pkg/validation|apiextensions-apiserver/pkg/(apiserver/validation|registry/customresource)\..*[vV]alidat|schema/listtype`),
		rule("decode, encode", `apimachinery/pkg/runtime/serializer/json|sigs\.k8s\.io/json|encoding/json`),
		rule("coercion to the schema", `apiextensions-apiserver/pkg/apiserver/schema|schemaCoercing`),
		rule("etcd", `apiserver/pkg/storage/etcd3|go\.etcd\.io|google\.golang\.org/grpc`),
		rule("conversion", `apiextensions-apiserver/pkg/apiserver/conversion|apimachinery/pkg/runtime/serializer|unstructured`),
		rule("authentication, authorization, audit", `apiserver/pkg/(authentication|authorization|audit)|rbac/`),
		rule("HTTP, TLS, the rest of requests", `net/http|x/net/http2|crypto/|internal/poll|apiserver/pkg/(server|endpoints)`),
		rule("scheduler", `^runtime\.(schedule|mcall|findRunnable|park_m|mstart|sysmon|goexit0)`),
	}
}

// Manager returns the rules for the operator.
func Manager() []Rule {
	return []Rule{
		collection(),
		rule("informers", `client-go/tools/cache|apimachinery/pkg/watch|client-go/rest/watch`),
		rule("writes", `client-go/rest\.\(\*Request\)|controller-runtime/pkg/client`),
		rule("hold", `cadastre/internal/(ledger|ipam)`),
		rule("resolve, wait, grant", `cadastre/internal/(allocator|queue|inventory)`),
		rule("decode of the review, answer", `cadastre/webhooks|controller-runtime/pkg/webhook`),
		rule("controllers", `cadastre/internal/controller|controller-runtime/pkg/internal/controller`),
		rule("HTTP, TLS, the rest of requests", `net/http|x/net/http2|crypto/|internal/poll`),
		rule("scheduler", `^runtime\.(schedule|mcall|findRunnable|park_m|mstart|sysmon|goexit0)`),
	}
}
