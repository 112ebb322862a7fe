// Package audit holds records, holders and pools against each other, and finds what does
// not agree.
//
// [Judge] decides from one [Snapshot]. The lists that a snapshot is read from are not of
// one moment, and the operator works while they are read, so a healthy cluster would be
// accused of what is under way. Three rules prevent that:
//
//   - Records are read first and their holders second, as the operator does. A claim that
//     was stored meanwhile is seen, and its record is not taken for one without holder.
//   - A record without holder that was written within the grace period is not judged: its
//     claim may still be on its way, or its leader may not have had time to collect it.
//   - What is found is read again, with growing pauses, and only what has been found each
//     time, with the same UIDs, is reported: see [Watch].
package audit
