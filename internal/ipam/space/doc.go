// Package space keeps the free space of one pool.
//
// A [Space] knows which addresses of its pool are in use, and finds free blocks
// by several fits. It knows nothing of who uses an address, or why.
//
// # How it works
//
// The addresses in use are kept as a path-compressed binary trie of the fewest
// prefixes that cover them. A leaf is a prefix that is wholly in use. An inner
// node is the longest prefix that covers its two children, and keeps two sums of
// what is below it: how many addresses are in use, and a mask with one bit per
// prefix length that says "a maximal free block of this length is below me". A
// maximal free block is one that is contained in no larger one.
//
// Every fit is then a choice among the bits of that mask, and a descent that
// follows the chosen bits. In 10.0.0.0/29, with .0, .1 and .6 in use:
//
//	 .0  .1  .2  .3  .4  .5  .6  .7
//	[##][##][  ][  ][  ][  ][##][  ]
//
//	            .0/29   2 lengths of free blocks: /31 and /32
//	           /     \
//	     .0/31         .6/32   both wholly in use
//
// The trie has two leaves, as .0 and .1 are the full halves of .0/31. Free space
// is never stored, it follows from the edges: the one to .0/31 passes by .2/31,
// the one to .6/32 passes by .4/31 and .7/32. A /32 is then found by
//
//	FirstFit  any of {/31, /32}: left has a /31           .2/32, cut from .2/31
//	BestFit   the longest, {/32}: left has none, right    .7/32
//	WorstFit  the shortest, {/31}: left has one           .2/32, cut from .2/31
//
// An IPv4 pool is kept as its IPv4-mapped IPv6 addresses, so that there is one
// code path, and all lengths inside this package are those of a 128-bit address.
//
// # Withheld ranges
//
// Addresses that are never handed out are kept as sorted ranges, which the trie does
// not repeat: see [Ranges]. Where nothing else is in use, it ends in a folded node, the
// sums of which are worked out from the ranges below it. It is unfolded on the way to
// a block that is used there, and folded again when the last one is released.
//
// # Cost
//
// An operation goes down the trie once, with a look at the sibling of each node on
// its way. That is at most one node per bit of the address, and about log2(n) of
// them for n scattered blocks. FindFrom goes down a second time when there is
// nothing to be had on its way, and FreeBlocks visits every node above a fitting
// block. To unfold a node, or to search a folded one, takes a look at up to 256 of the
// ranges in it, whatever their number, and at a sum of each 256 of the others. In the
// worst case, the first block of ::/0 with 2,048 withheld ranges, that is 0.1 ms.
//
// A block in use costs at most two nodes of 64 bytes, and where ranges are withheld
// around it, two for each level at which it parts from one of them. Nodes live in one slice and
// are reused, so that operations allocate only when the trie is larger than it ever
// was; the memory is not given back.
package space
