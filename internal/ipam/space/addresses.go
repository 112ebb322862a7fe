package space

import (
	"encoding/binary"
	"sort"
)

// addresses holds an immutable, sorted list of addresses without duplicates.
//
// A long list leaves out the first byte of each address, and instead keeps the positions at
// which the addresses with each first byte begin: 4,096 addresses then take 60 KiB and 1/2 KiB,
// and 64 KiB otherwise. The list is kept in pages, because the allocator rounds up sizes above
// 32 KiB.
type addresses struct {
	n int
	// width is the number of bytes that are kept of each address: 16, or 15.
	width int
	pages [][]byte
	// starts are the positions at which the addresses with each first byte begin, and the end;
	// nil if width is 16.
	starts []uint16
}

const (
	// longList is the smallest length of a list that leaves out first bytes.
	longList = 1024
	// pageSize is a size class of the allocator.
	pageSize = 4096
)

func newAddresses(sorted []uint128) addresses {
	s := addresses{n: len(sorted), width: 16}
	if s.n >= longList && s.n < 1<<16 {
		s.width, s.starts = 15, make([]uint16, 257)
		for _, a := range sorted {
			s.starts[a.firstByte()+1]++
		}
		for i := range 256 {
			s.starts[i+1] += s.starts[i]
		}
	}
	for len(sorted) > 0 {
		chunk := sorted[:min(len(sorted), s.perPage())]
		page := make([]byte, 0, len(chunk)*s.width)
		for _, a := range chunk {
			var b [16]byte
			binary.BigEndian.PutUint64(b[:8], a.hi)
			binary.BigEndian.PutUint64(b[8:], a.lo)
			page = append(page, b[16-s.width:]...)
		}
		s.pages, sorted = append(s.pages, page), sorted[len(chunk):]
	}
	return s
}

func (s *addresses) perPage() int { return pageSize / s.width }

// at returns the i-th address.
func (s *addresses) at(i int) uint128 {
	if s.starts == nil {
		return s.read(i, 0)
	}
	first := sort.Search(255, func(b int) bool { return int(s.starts[b+1]) > i })
	return s.read(i, uint64(first))
}

// read returns the i-th address. Its first byte is first if the list leaves that out.
func (s *addresses) read(i int, first uint64) uint128 {
	at := i % s.perPage() * s.width
	b := s.pages[i/s.perPage()][at : at+s.width]
	if s.width == 16 {
		return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	}
	return uint128{first<<56 | binary.BigEndian.Uint64(b[:8])>>8, binary.BigEndian.Uint64(b[7:])}
}

// upTo returns the number of addresses that are not above a.
func (s *addresses) upTo(a uint128) int {
	from, to, first := 0, s.n, a.firstByte()
	if s.starts != nil {
		from, to = int(s.starts[first]), int(s.starts[first+1])
	}
	return from + sort.Search(to-from, func(i int) bool { return a.less(s.read(from+i, first)) })
}

func (u uint128) firstByte() uint64 { return u.hi >> 56 }
