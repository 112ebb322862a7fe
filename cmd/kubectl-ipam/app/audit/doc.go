// Package audit compares records, holders and pools with each other, and finds those that do
// not agree.
//
// [Judge] decides from one [Snapshot]. The lists from which a snapshot is read are not of one
// moment, and the operator works while they are read, so Judge could report operations that
// are under way in a healthy cluster as errors. Three rules prevent that:
//
//   - Records are read first and their holders second, as the operator does. A claim that
//     was stored between the two is seen, and its record does not count as one without holder.
//   - A record without holder that was written within the grace period is not judged: its
//     claim may still be on its way, or its leader may not have had time to collect it.
//   - The snapshot is read again, with growing pauses, and only the findings that each
//     snapshot has, with the same UIDs, are reported: see [Watch].
package audit
