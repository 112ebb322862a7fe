package convert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestClass(t *testing.T) {
	defaults := ipam.Class{
		Name: "c", Family: ipam.IPv4, Selection: ipam.SelectFirstFit, ReuseDelay: -1,
		Lengths: ipam.Lengths{Min: 0, Max: 32}, Length: ipam.NoLength, Reclaim: ipam.ReclaimDelete, Visibility: ipam.VisibilityShared,
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.IPClassSpec
		want func(*ipam.Class)
	}{
		"a class needs no more than its family": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4}, func(*ipam.Class) {}},
		"a class of IPv6 hands out up to /128": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv6}, func(c *ipam.Class) {
			c.Family, c.Lengths.Max = ipam.IPv6, 128
		}},
		"our own provisioner may be stated": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Provisioner: v1alpha1.NativeProvisioner}, func(*ipam.Class) {}},
		"a program may make the pools": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Provisioner: "example.com/other"}, func(c *ipam.Class) {
			c.Provisioner = "example.com/other"
		}},
		"bounds and default length are taken over": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(24)),
			AllowedPrefixLengths: &v1alpha1.PrefixLengthBounds{Min: new(int32(20)), Max: new(int32(28))}}, func(c *ipam.Class) {
			c.Length, c.Lengths = 24, ipam.Lengths{Min: 20, Max: 28}
		}},
		"bounds may be one and the same": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(24)),
			AllowedPrefixLengths: &v1alpha1.PrefixLengthBounds{Min: new(int32(24)), Max: new(int32(24))}}, func(c *ipam.Class) {
			c.Length, c.Lengths = 24, ipam.Lengths{Min: 24, Max: 24}
		}},
		"one bound leaves the other as it is": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4,
			AllowedPrefixLengths: &v1alpha1.PrefixLengthBounds{Min: new(int32(20))}}, func(c *ipam.Class) { c.Lengths.Min = 20 }},
		"a length of 0 is one": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(0))}, func(c *ipam.Class) { c.Length = 0 }},
		"policy is taken over": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4,
			PoolSelection: v1alpha1.SelectMostUtilized, Strategy: v1alpha1.StrategyRandom, OnExhaustion: v1alpha1.OnExhaustionReject,
			ReclaimPolicy: v1alpha1.ReclaimRetain, RetentionPeriod: &metav1.Duration{Duration: time.Hour}, ReuseDelay: &metav1.Duration{Duration: time.Minute},
			Visibility: v1alpha1.VisibilityConsumer, Project: "shop"}, func(c *ipam.Class) {
			c.Selection, c.Strategy, c.OnExhaustion = ipam.SelectMostUtilized, ipam.StrategyRandom, ipam.OnExhaustionReject
			c.Reclaim, c.Retention, c.ReuseDelay = ipam.ReclaimRetain, time.Hour, time.Minute
			c.Visibility, c.Project, c.AllowRetain = ipam.VisibilityConsumer, "shop", true
		}},
		"retaining can be allowed beside": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, AllowRetain: new(true)}, func(c *ipam.Class) { c.AllowRetain = true }},
		"limits are numbers of any size": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Limits: &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{
			Blocks: new(int64(16)), Addresses: new(intstr.FromString("18446744073709551616"))}}}, func(c *ipam.Class) {
			addresses := build.Count("18446744073709551616")
			sixteen := build.Count("16")
			c.Limit = ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: sixteen}, Addresses: ipam.Maximum{Set: true, Count: addresses}}
		}},
		"a delay of nothing is stated, and beats the pool's": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, ReuseDelay: &metav1.Duration{}},
			func(c *ipam.Class) { c.ReuseDelay = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults
			tc.want(&want)
			got, errs := Class(&v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: tc.spec})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClassRefuses(t *testing.T) {
	bounds := func(shortest, longest int32) *v1alpha1.PrefixLengthBounds {
		return &v1alpha1.PrefixLengthBounds{Min: &shortest, Max: &longest}
	}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		spec v1alpha1.IPClassSpec
		want []string
	}{
		"a default length of 33 in IPv4": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(33))},
			[]string{"spec.defaultPrefixLength: Invalid value: 33: must be between 0 and 32"}},
		"a default length of 129": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv6, DefaultPrefixLength: new(int32(129))},
			[]string{"spec.defaultPrefixLength: Invalid value: 129: must be between 0 and 128"}},
		"a negative default length": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv6, DefaultPrefixLength: new(int32(-1))},
			[]string{"spec.defaultPrefixLength: Invalid value: -1: must be between 0 and 128"}},
		"bounds that there are not": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, AllowedPrefixLengths: bounds(-1, 33)},
			[]string{
				"spec.allowedPrefixLengths.min: Invalid value: -1: must be between 0 and 32",
				"spec.allowedPrefixLengths.max: Invalid value: 33: must be between 0 and 32",
			}},
		"bounds the wrong way round": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, AllowedPrefixLengths: bounds(28, 20)},
			[]string{"spec.allowedPrefixLengths.min: Invalid value: 28: must not be greater than max: swap them"}},
		"a default length below the bounds": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(19)), AllowedPrefixLengths: bounds(20, 28)},
			[]string{"spec.defaultPrefixLength: Invalid value: 19: must lie within allowedPrefixLengths: change one of them"}},
		"a default length above the bounds": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, DefaultPrefixLength: new(int32(29)), AllowedPrefixLengths: bounds(20, 28)},
			[]string{"spec.defaultPrefixLength: Invalid value: 29: must lie within allowedPrefixLengths: change one of them"}},
		"a delay of less than nothing": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, ReuseDelay: &metav1.Duration{Duration: -time.Minute}},
			[]string{`spec.reuseDelay: Invalid value: "-1m0s": must not be negative: leave it out for none`}},
		"a retention of less than nothing": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, ReclaimPolicy: v1alpha1.ReclaimRetain, RetentionPeriod: &metav1.Duration{Duration: -time.Minute}},
			[]string{`spec.retentionPeriod: Invalid value: "-1m0s": must be more than 0: leave it out for the default`}},
		"a class that retains and does not allow it": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, ReclaimPolicy: v1alpha1.ReclaimRetain, AllowRetain: new(false)},
			[]string{"spec.allowRetain: Invalid value: false: must not be false where reclaimPolicy is Retain: remove one of them"}},
		"a limit that is no number": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Limits: &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Addresses: new(intstr.FromString("1Ki"))}}},
			[]string{`spec.limits.perProject.addresses: Invalid value: "1Ki": must be a decimal number of 0 or more, of up to 39 digits`}},
		"a limit below 0": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Limits: &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Blocks: new(int64(-1))}}},
			[]string{`spec.limits.perProject.blocks: Invalid value: "-1": must be a decimal number of 0 or more, of up to 39 digits`}},
		"consumers of no project": {v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4, Visibility: v1alpha1.VisibilityConsumer},
			[]string{"spec.project: Required value: visibility Consumer needs a project: set the one whose claims may use it"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := Class(&v1alpha1.IPClass{Spec: tc.spec})
			rows = append(rows, rowsOf("IPClass", errs...)...)
			if diff := cmp.Diff(tc.want, messagesOf(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestPolicyErrorStatesFirstFieldError(t *testing.T) {
	cidr, length := field.NewPath("spec", "cidr"), field.NewPath("spec", "prefixLength")
	for want, errs := range map[string]field.ErrorList{
		"":                                   nil,
		"spec.prefixLength: 8: is too large": {field.Invalid(length, 8, "is too large"), field.Required(cidr, "set one")},
		"spec.cidr: Required value: set one of both": {field.Required(cidr, "set one of both")},
	} {
		err := PolicyError(errs)
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v: got %v, want %q", errs, err, want)
		}
	}
}
