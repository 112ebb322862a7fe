package view

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// FreeReport represents the output of `free`.
type FreeReport struct {
	metav1.TypeMeta `json:",inline"`
	Pool            command.ObjectRef `json:"pool"`
	CIDR            string            `json:"cidr,omitempty"`
	// Source is Records, or DryRun for a pool that the caller cannot read.
	Source string `json:"source"`
	// Free is the number of free addresses, a decimal string; empty if it is not known.
	Free string `json:"free,omitempty"`
	// LargestFreePrefix is the prefix length of the largest free block, as in /20.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// Lengths holds the lengths that the pool hands out and has free, unless the caller asks
	// for one length. For an IPv6 pool it holds the multiples of 4, the shortest and the longest.
	Lengths []FreeLength `json:"lengths,omitempty"`
	// Blocks holds the next blocks of the requested length, in the order in which the pool
	// would hand them out, or in address order for a pool that chooses at random.
	Blocks []string `json:"blocks,omitempty"`
	// Available is the number of free blocks of that length, a decimal string.
	Available string `json:"available,omitempty"`
	// Waiting is the number of claims that wait for a block that could be of this pool.
	Waiting int `json:"waiting"`

	name string
}

// FreeLength represents the free blocks of a length, counted as if only blocks of this length
// are taken.
type FreeLength struct {
	PrefixLength int `json:"prefixLength"`
	// Blocks is the number of these blocks, a decimal string.
	Blocks string `json:"blocks"`
	// Next is the block that the pool would hand out.
	Next string `json:"next"`
}

// parse checks the flags, and sets Length if a length is given.
func (o *FreeOptions) parse(length string) error {
	if o.Count < 1 {
		return fmt.Errorf("--count=%d: must be 1 or more", o.Count)
	}
	if length == "" {
		return nil
	}
	bits, err := strconv.Atoi(strings.TrimPrefix(length, "/"))
	if err != nil || bits < 0 || bits > ipam.IPv6.Bits() {
		return fmt.Errorf("--length=%s: is not a prefix length: write a number such as 24", length)
	}
	o.Length = bits
	return nil
}

// NewFreeReport finds the free blocks of a pool that the caller can read. If there are none, the
// error gives the reason and has its exit code.
func NewFreeReport(pool *register.Pool, options FreeOptions) (*FreeReport, error) {
	name := pool.Key.Name
	if !pool.CIDR.IsValid() {
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no CIDR yet: it waits for a block of %s", name, pool.Home))
	}
	length := options.Length
	if length == ipam.NoLength && pool.Network != nil {
		length = pool.Family.Bits()
	}
	if length != ipam.NoLength && !pool.Lengths.Contain(length) {
		return nil, command.Coded(command.ExitUsage, fmt.Errorf("--length=%d: pool %s (%s) hands out /%d to /%d: ask for one of these", length, name, pool.CIDR, pool.Lengths.Min, pool.Lengths.Max))
	}
	s := pool.Space()
	largest, ok := s.LargestFree()
	switch {
	case !ok:
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free block: release one, or use another pool", name))
	case largest > pool.Lengths.Max:
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free block of a length that it hands out (/%d to /%d): its largest is a /%d", name, pool.Lengths.Min, pool.Lengths.Max, largest))
	}
	report := &FreeReport{
		TypeMeta: command.ReportType("FreeReport"), Pool: command.RefOfPool(pool.Key), CIDR: pool.CIDR.String(), Source: sourceRecords,
		Free: s.Free().String(), LargestFreePrefix: fmt.Sprintf("/%d", largest), Waiting: len(pool.Waiting), name: name,
	}
	if length == ipam.NoLength {
		report.addLengths(pool, s, largest)
		return report, nil
	}
	if largest > length {
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free /%d: its largest free block is a /%d: ask for that, or for less", name, length, largest))
	}
	report.Available = s.FreeBlocks(length).String()
	for range options.Count {
		block, ok := s.Find(fitOf(pool.Strategy), length)
		if !ok {
			break
		}
		s.Use(block)
		report.Blocks = append(report.Blocks, block.String())
	}
	return report, nil
}

// addLengths adds the lengths that the pool hands out and has free.
func (r *FreeReport) addLengths(pool *register.Pool, s *space.Space, largest int) {
	shortest := max(largest, pool.Lengths.Min)
	for bits := shortest; bits <= pool.Lengths.Max; bits++ {
		if pool.Family == ipam.IPv6 && bits%4 != 0 && bits != shortest && bits != pool.Lengths.Max {
			continue
		}
		if found, ok := s.Find(fitOf(pool.Strategy), bits); ok {
			r.Lengths = append(r.Lengths, FreeLength{PrefixLength: bits, Blocks: s.FreeBlocks(bits).String(), Next: found.String()})
		}
	}
}

// fitOf returns the fit by which a strategy chooses; for a strategy that chooses at random, the
// fit that finds the lowest block.
func fitOf(strategy ipam.Strategy) space.Fit {
	switch strategy {
	case ipam.StrategyBestFit:
		return space.BestFit
	case ipam.StrategyWorstFit:
		return space.WorstFit
	default:
		return space.FirstFit
	}
}

// Names implements command.Report.
func (r *FreeReport) Names() []string {
	return []string{strings.ToLower(r.Pool.Kind) + "/" + r.Pool.Name}
}

// Table implements command.Report.
func (r *FreeReport) Table(bool) *command.Table {
	if len(r.Lengths) > 0 {
		t := &command.Table{Headers: []string{"LENGTH", "FREE BLOCKS", "NEXT"}}
		for _, length := range r.Lengths {
			t.Add(command.Text("/%d", length.PrefixLength), number(length.Blocks), command.Text("%s", length.Next))
		}
		return t
	}
	t := &command.Table{Headers: []string{"FREE BLOCK"}}
	for _, block := range r.Blocks {
		t.Add(command.Text("%s", block))
	}
	if total, ok := space.ParseCount(r.Available); ok && total != space.CountOf64(uint64(len(r.Blocks))) {
		t.Footer = fmt.Sprintf("Of this length %s are free in all.", command.Readable(total))
	}
	return t
}
