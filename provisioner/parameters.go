package provisioner

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// parameters holds the parameters of a class that Run reads.
type parameters struct {
	poolPrefixLength int
	spare, maxPools  int
	releaseAfter     time.Duration
}

// parametersOf reads the parameters of a class. The error names the parameter, its value and the remedy.
func parametersOf(class *v1alpha1.IPClass) (parameters, error) {
	p := parameters{maxPools: 16, releaseAfter: 10 * time.Minute}
	if _, ok := class.Spec.Parameters["poolPrefixLength"]; !ok {
		return p, fmt.Errorf("parameters.poolPrefixLength is missing: set it to the prefix length of each pool")
	}
	for _, number := range []struct {
		name     string
		target   *int
		min, max int
	}{
		{"poolPrefixLength", &p.poolPrefixLength, 1, bitsOf(class.Spec.IPFamily)}, {"spare", &p.spare, 0, 1 << 20}, {"maxPools", &p.maxPools, 1, 1024},
	} {
		value, ok := class.Spec.Parameters[number.name]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < number.min || n > number.max {
			return p, fmt.Errorf("parameters.%s is %q: set it to a number from %d to %d", number.name, value, number.min, number.max)
		}
		*number.target = n
	}
	if value, ok := class.Spec.Parameters["releaseAfter"]; ok {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return p, fmt.Errorf("parameters.releaseAfter is %q: set it to a duration of 0 or more, such as 10m", value)
		}
		p.releaseAfter = d
	}
	return p, nil
}

func bitsOf(family v1alpha1.IPFamily) int {
	if family == v1alpha1.IPv6 {
		return 128
	}
	return 32
}
