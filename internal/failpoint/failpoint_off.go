//go:build !failpoints

package failpoint

// SkipConfirm hands a block out whatever else overlaps it.
func SkipConfirm() bool { return false }

// ReleaseByName deletes a record without saying which one of that name is meant,
// nor in which state.
func ReleaseByName() bool { return false }

// AnswerUnsynced answers from a view that has no list yet, and takes the
// acknowledgement of a record for its confirmation.
func AnswerUnsynced() bool { return false }

// SkipPoolCheck hands blocks out of a pool whose own record is gone, and releases such
// a record at once.
func SkipPoolCheck() bool { return false }
